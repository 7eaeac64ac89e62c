"""What each engine can compute, and which one runs a spec: chosen here, and nowhere else."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
import subprocess
import sys
import threading
from typing import Annotated, Any, NamedTuple

import numpy as np

from keras_attention.engine.base import Engine
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.spec.parts import ACTIVATIONS, as_array, check_finite
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import check_choice, counted
from keras_attention.utils.progress import activity


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
    "restrictions": "has no restrictions, no prefixes and no `break_loops`",
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


EngineName = Annotated[str, lambda name, value: check_choice(name, value, ENGINES)]
Precision = Annotated[str, lambda name, value: check_choice(name, value, PRECISIONS)]
# NumPy makes so many multiplications in about ten seconds (dev/LOG.md); Numba compiles for a minute or two.
FEW_MULTIPLICATIONS = 40e9
# And so many in half a second, in which Numba is imported.
VERY_FEW_MULTIPLICATIONS = 2e9
# What engines need besides the package and its backend.
LIBRARIES = {"numba": "Numba", "ctranslate2": "CTranslate2"}
_lock = threading.Lock()
# Compiles Numba's search, the same for all models of a precision, when nothing else wants the processor. Its
# standard input ends when the process that started it does, however that happens.
COMPILER = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
getattr(os, "nice", int)(19)
import keras_attention_light
for model in sys.argv[2:]:
    keras_attention_light.load_translator(model, engine="numba", precision=sys.argv[1])("The dog sleeps.")
"""
_compilers: list[subprocess.Popen[bytes]] = []


class EngineChoice(NamedTuple):
    """The engine of a model, and why it is."""

    name: str
    reason: str


class EngineSelector:
    """The engine of a spec.

    Numba's where it runs the spec and the model is on a CPU, else the backend's. Time is not measured: what
    is found would hang on it, in the last digit. On a CPU Numba's took the least time at every size that
    was tried (dev/LOG.md), with AVX2 alone, too. NumPy's takes its place for a little text where it must be
    compiled first, which takes a minute or two once on a machine, and for a very little where it must be
    imported first, which takes most of a second once in a process.

    Args:
        engine: One of `ENGINES`, but not `"plain"`.
        needs: What the search must be able to do, of the keys of `LACKS`.

    Attributes:
        fixed_shapes: Whether each shape of a batch is compiled, so that there should be few.
        needs_compiling: Whether Numba's was found to be not compiled yet, so that NumPy's stands in for it.

    Raises:
        SpecError: If nothing installed, or not the engine asked for, runs this spec in this precision.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        precision: str,
        engine: str = "auto",
        needs: frozenset[str] = frozenset(),
    ):
        self._spec = spec
        self._precision = precision
        # Whoever has arrays may have no Keras; they stay as they are.
        is_fixed = all(isinstance(weight, np.ndarray) for weight in spec.weights().values())
        self._backend = "" if is_fixed else running_backend()
        self.choice = self._chosen(engine, needs)
        self.fixed_shapes = self.choice.name == "jax"
        self._is_waiting = self.choice.name == "numba" and engine == "auto"
        self._is_waiting &= needs <= {*ABILITIES["numpy"].offers}
        self._is_waiting &= refusal("numpy", spec, precision) is None
        if self._is_waiting:
            also = "NumPy stands in for it where a text is done before it is loaded."
            self.choice = self.choice._replace(reason=f"{self.choice.reason} {also}")
        self.needs_compiling = False
        self._multiplications = 0.0
        self._engines: dict[str, Engine] = {}
        self._version = (lambda: 0) if is_fixed else _module(self._backend).watch_weights(spec)
        self._versions_read: dict[str, Any] = {}

    def _chosen(self, engine: str, needs: frozenset[str]) -> EngineChoice:
        backend = self._backend
        if engine not in ("auto", "numba", "ctranslate2", "numpy", backend):
            has, own = "this spec holds NumPy arrays", "another model"
            if backend:
                has = f"the backend is {backend!r}"
                own = f"{backend!r} or 'plain', or set KERAS_BACKEND={engine}"
            raise SpecError(
                f"engine={engine!r} computes with its backend's tensors, and {has}. Choose 'auto', "
                f"'numba', 'numpy', 'ctranslate2', {own}."
            )
        names = ["numba", backend or "numpy"] if engine == "auto" else [engine]
        # What neither can, the backend's can, if there is one: it reads arrays, too.
        if engine == "auto" and not any(needs <= {*ABILITIES[name].offers} for name in names):
            names += [running_backend()] if is_installed("keras") else []
        refusals = {name: refusal(name, self._spec, self._precision) for name in names}
        for name in names:
            lacks = [LACKS[need] for need in LACKS if need in needs - {*ABILITIES[name].offers}]
            if lacks:
                refusals[name] = f"engine={name!r} {' and '.join(lacks)}."
        if engine == "auto" and backend and not _module(backend).is_on_cpu(self._spec):
            refusals["numba"] = refusals["numba"] or "The model is not on a CPU."
        usable = [name for name, reason in refusals.items() if reason is None]
        if not usable:
            raise SpecError(" ".join(filter(None, refusals.values())))
        if usable == ["ctranslate2"]:
            return EngineChoice("ctranslate2", "It was asked for; the search is its own.")
        if engine != "auto":
            return EngineChoice(engine, "It was asked for.")
        return EngineChoice(usable[0], refusals["numba"] or "It is the fastest on a CPU.")

    def choice_for(self, rows: int) -> EngineChoice:
        """Return the choice, and how much a step of so many rows computes: of sentences times beams."""
        step = (
            f"Each step of the search computes the next token of {counted(rows, 'candidate translation')}, "
            f"with {self._weights_of_step / 1e6:,.1f} million weights."
        )
        return self.choice._replace(reason=f"{self.choice.reason} {step}")

    @functools.cached_property
    def _weights_of_step(self) -> int:
        """How many weights a step of the decoder multiplies with."""
        return self._spec.target_vocabulary_size * self._spec.hidden_dim + sum(
            math.prod(weight.shape)
            for path, weight in self._spec.weights().items()
            if path.startswith("decoder.blocks.")
        )

    def engine(self, rows: float = math.inf) -> Engine:
        """Return the engine, with the present weights.

        Args:
            rows: About how many tokens of candidate translations it will compute. Defaults to many.

        Raises:
            NonFiniteModel: If one of them is infinite or NaN.
        """
        with _lock:  # of threads that begin at once, the first one reads the weights
            self._multiplications += rows * self._weights_of_step
            # NumPy may be done before Numba is imported.
            needs_numba = self._multiplications > VERY_FEW_MULTIPLICATIONS
            if self._is_waiting and (needs_numba or "numba" in sys.modules):
                self.needs_compiling = not self._present("numba").is_compiled()
                self._is_waiting = self.needs_compiling
                self._is_waiting &= self._multiplications <= FEW_MULTIPLICATIONS
            if self._is_waiting:
                return self._present("numpy")
            if self.choice.name == "numba" and _compilers:
                with activity("compiling Numba's search"):
                    _compilers[0].wait()
            return self._present(self.choice.name)

    def compile_beside(self, rows: float, preset: str | None = None) -> None:
        """Have another process compile what `engine` needs for so many rows, if that is Numba's search.

        `preset` is what the weights were read from. Those of 8 bits have a program of their own.
        """
        needs_numba = rows * self._weights_of_step > FEW_MULTIPLICATIONS
        if self.choice.name == "numba" and needs_numba and not _compilers:
            own = [preset] if preset is not None and self._has_eight_bits() else []
            command = [sys.executable, "-c", COMPILER, self._precision, "demo_en_de", *own]
            quiet = subprocess.DEVNULL
            # Without it, the search is compiled when it is needed.
            with contextlib.suppress(OSError):
                _compilers.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
                )

    def _has_eight_bits(self) -> bool:
        from keras_attention.engine.numba.packing import eight_bit_scales

        return eight_bit_scales(as_array(self._spec.output_embedding.embeddings)) is not None

    def _present(self, name: str) -> Any:
        """Return an engine with the present weights."""
        if name not in self._engines:
            # Numba's import takes a second: only who uses it waits for it.
            self._engines[name] = _module(name).ENGINE(self._spec, self._precision)
        version = self._version()
        if name not in self._versions_read or version != self._versions_read[name]:
            check_finite(self._spec.weights())
            self._engines[name].read_weights()
            self._versions_read[name] = version
        return self._engines[name]


def _module(name: str) -> Any:
    return importlib.import_module(ABILITIES[name].module)


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def check_engine(engine: str, precision: str | None) -> None:
    """Refuse an engine and a precision that no model can be decoded with, before there is a model.

    Raises:
        ValueError: If the engine is not installed or has no such precision.
    """
    if engine == "plain" and precision is not None:
        raise ValueError(
            "engine='plain' computes in the model's own dtype: leave `precision` out. Received: "
            f"precision={precision!r}"
        )
    reason = None if engine in ("auto", "plain") else _unable(engine, precision)
    if reason is not None:
        raise ValueError(reason)


def _unable(name: str, precision: str | None) -> str | None:
    """Why an engine can run nothing in a precision."""
    precisions = ABILITIES[name].precisions
    if name in LIBRARIES and not is_installed(name):
        return (
            f"engine={name!r} needs {LIBRARIES[name]}, which is not installed: pip install {name}."
        )
    if precision not in (None, *precisions):
        return f"engine={name!r} computes in {', '.join(precisions)}. Received: precision={precision!r}"
    return None


def refusal(name: str, spec: TransformerSpec, precision: str) -> str | None:
    """Why an engine cannot run a spec in a precision; None if it can."""
    abilities = ABILITIES[name]
    unable = _unable(name, precision)
    if unable is not None:
        return unable
    for kind, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for index, block in enumerate(stack.blocks):
            where = f"{kind} block {index + 1}"
            activation = block.feed_forward.activation
            if activation not in abilities.activations:
                return f"engine={name!r} has no activation {activation!r}, which {where} has."
    if name == "ctranslate2":
        from keras_attention.interop.ctranslate2 import check_exportable

        try:
            check_exportable(spec)
        except ValueError as error:
            return str(error)
    return None
