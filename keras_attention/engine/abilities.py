"""What each engine can compute, known before anything of it is imported."""

from typing import Annotated, Any, NamedTuple

from keras_attention.spec.parts import ACTIVATIONS
from keras_attention.utils.checks import check_choice


class Abilities(NamedTuple):
    """What an engine can compute, known before its module is imported."""

    module: str
    precisions: tuple[str, ...]
    activations: tuple[str, ...] = ACTIVATIONS
    # What it has, or leaves to the search that it steps for; the keys of `LACKS`.
    offers: tuple[str, ...] = ("constraint", "sampling", "restrictions", "ensemble")


# What an engine that makes the whole search may lack, for the message that refuses it.
LACKS = {
    "constraint": "makes the whole search, without constraints and phrases",
    "sampling": "draws no samples that another engine would draw, too",
    "restrictions": "has no restrictions and no prefixes",
    "ensemble": "searches with one model alone",
}
# float64 is left to the model itself: engines form sums in float32.
FLOATS = ("float32", "bfloat16", "float16")
ABILITIES = {
    "numba": Abilities(
        "keras_attention.engine.numba.engine",
        ("float32", "bfloat16", "int8"),
        ("relu", "linear", "gelu", "silu", "tanh", "sigmoid"),
        offers=("sampling", "restrictions"),
    ),
    "ctranslate2": Abilities(
        "keras_attention.engine.ctranslate2",
        ("float32", "int8"),
        ("relu", "gelu", "silu", "tanh", "sigmoid"),
        offers=(),
    ),
    "tensorflow": Abilities("keras_attention.engine.tensorflow", FLOATS),
    "torch": Abilities("keras_attention.engine.torch", FLOATS),
    "jax": Abilities("keras_attention.engine.jax", FLOATS),
    "numpy": Abilities(
        "keras_attention.engine.numpy",
        ("float32",),
        ("relu", "linear", "silu", "tanh", "sigmoid"),
        offers=(),
    ),
}
# "plain" is no engine, but the search over the model itself.
ENGINES = ("auto", *ABILITIES, "plain")
PRECISIONS = ("float32", "bfloat16", "float16", "int8")


def _known_engine(name: str, value: Any) -> str:
    return check_choice(name, value, ENGINES)


def _known_precision(name: str, value: Any) -> str:
    return check_choice(name, value, PRECISIONS)


EngineName = Annotated[str, _known_engine]
Precision = Annotated[str, _known_precision]
