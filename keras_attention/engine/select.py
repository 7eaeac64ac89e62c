"""Which engine runs a spec: chosen here, and nowhere else."""

from __future__ import annotations

import importlib
import importlib.util
import math
from typing import Any, NamedTuple

import keras

from keras_attention.engine.base import Engine
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.spec.parts import ACTIVATIONS


class Abilities(NamedTuple):
    """What an engine can compute, known before its module is imported."""

    module: str
    precisions: tuple[str, ...]
    activations: tuple[str, ...] = ACTIVATIONS


FLOATS = ("float32", "bfloat16", "float16", "float64")
ABILITIES = {
    "numba": Abilities(
        "keras_attention.engine.numba.engine",
        ("float32", "bfloat16", "int8"),
        ("relu", "linear", "gelu", "silu", "tanh", "sigmoid"),
    ),
    "tensorflow": Abilities("keras_attention.engine.tensorflow", FLOATS),
    "torch": Abilities("keras_attention.engine.torch", FLOATS),
    "jax": Abilities("keras_attention.engine.jax", FLOATS),
}
# "plain" is no engine, but the search over the model itself.
ENGINES = ("auto", *ABILITIES, "plain")
# Products of two numbers in a step up to which Numba is the faster without AVX-512, too: for larger steps
# the time is that of products of matrices, in which the backends' libraries are ahead there.
NUMBA_MAX_PRODUCTS = 500_000_000


class EngineChoice(NamedTuple):
    """The engine for a batch, and why."""

    name: str
    reason: str


class EngineSelector:
    """The engines of a spec; which one runs depends on the batch.

    Args:
        spec: What is run.
        precision: `"float32"`, `"bfloat16"`, `"float16"` or `"int8"`.
        engine: One of `ENGINES`, but not `"plain"`.

    Raises:
        SpecError: If nothing installed runs this spec in this precision, or the engine asked for
            does not.
    """

    def __init__(self, spec: TransformerSpec, precision: str, engine: str = "auto"):
        self._spec = spec
        self._precision = precision
        self._backend = importlib.import_module(ABILITIES[keras.backend.backend()].module)
        self._usable = self._usable_engines(engine)
        self._engines: dict[str, Engine] = {}
        self._version = self._backend.watch_weights(spec)
        self._version_read: Any = None
        self._up_to_date: set[str] = set()  # the engines that have read the present weights

    def _usable_engines(self, engine: str) -> list[str]:
        """The names of the engines that may run."""
        backend = keras.backend.backend()
        if engine not in ("auto", "numba", backend):
            raise SpecError(
                f"engine={engine!r} computes with its backend's tensors, and the backend is "
                f"{backend!r}. Choose 'auto', 'numba', {backend!r} or 'plain', or set "
                f"KERAS_BACKEND={engine}."
            )
        names = ["numba", backend] if engine == "auto" else [engine]
        refusals = {name: refusal(name, self._spec, self._precision) for name in names}
        if engine == "auto" and not self._backend.is_on_cpu(self._spec):
            refusals["numba"] = refusals["numba"] or "The model is not on a CPU."
        usable = [name for name, reason in refusals.items() if reason is None]
        if not usable:
            raise SpecError(" ".join(filter(None, refusals.values())))
        return usable

    def choice(self, rows: int) -> EngineChoice:
        """The engine for a number of rows, which is sentences times beams."""
        backend = keras.backend.backend()
        if "numba" not in self._usable:
            return EngineChoice(backend, "Numba was not asked for, or cannot run this.")
        if backend not in self._usable:
            return EngineChoice("numba", f"{backend} was not asked for, or cannot run this.")
        from keras_attention.engine.numba.llvm import has_features

        if has_features("avx512f"):
            return EngineChoice("numba", "The processor has AVX-512.")
        products = rows * self._products_of_a_row()
        size = f"A step of {rows} rows is {products / 1e6:.0f} million products"
        if products <= NUMBA_MAX_PRODUCTS:
            return EngineChoice("numba", f"{size}, few enough without AVX-512.")
        return EngineChoice(backend, f"{size}, many without AVX-512.")

    def _products_of_a_row(self) -> int:
        """Products with weights in a decoding step, of one row."""
        sizes = [
            math.prod(weight.shape)
            for path, weight in self._spec.weights().items()
            if path.startswith("decoder.blocks.")
        ]
        return sum(sizes) + self._spec.vocabulary_size * self._spec.hidden_dim

    @property
    def fixed_shapes(self) -> bool:
        """Whether each shape of a batch is compiled, so that there should be few."""
        names = {self.choice(rows).name for rows in (1, 1 << 30)}
        return "jax" in names

    def refresh(self) -> None:
        """Looks whether the weights have changed; an engine reads them when it is used."""
        version = self._version()
        if version != self._version_read:
            self._version_read = version
            self._up_to_date.clear()

    def engine_for(self, rows: int) -> Engine:
        """The engine for a number of rows, with the weights of the last `refresh`."""
        engine = self._engine(self.choice(rows).name)
        if engine.name not in self._up_to_date:
            engine.read_weights()
            self._up_to_date.add(engine.name)
        return engine

    def needs_compiling(self, batch_size: int, beam_size: int, length: int) -> bool:
        """Whether a batch of this shape takes longer the first time."""
        engine = self._engine(self.choice(batch_size * beam_size).name)
        return engine.needs_compiling(batch_size, length)

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            # Numba's import takes a second: only who uses it waits for it.
            module = importlib.import_module(ABILITIES[name].module)
            self._engines[name] = module.ENGINE(self._spec, self._precision)
        return self._engines[name]


def has_numba() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


def refusal(name: str, spec: TransformerSpec, precision: str) -> str | None:
    """Why an engine cannot run a spec in a precision; None if it can."""
    abilities = ABILITIES[name]
    if name == "numba" and not has_numba():
        return "engine='numba' needs Numba, which is not installed: pip install numba."
    if precision not in abilities.precisions:
        return (
            f"engine={name!r} computes in {', '.join(abilities.precisions)}. Received: "
            f"precision={precision!r}"
        )
    for kind, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for index, block in enumerate(stack.blocks):
            where = f"{kind} block {index + 1}"
            attentions = [block.self_attention, block.cross_attention]
            if any(part is not None and part.window is not None for part in attentions):
                return f"No engine has attention windows; {where} has one."
            activation = block.feed_forward.activation
            if activation not in abilities.activations:
                return f"engine={name!r} has no activation {activation!r}, which {where} has."
    return None
