"""What does each fast operation of an engine save? The time of a search without it, divided by that with all.

    KERAS_BACKEND=torch python benchmarks/engine_operations.py tiny
    KERAS_BACKEND=tensorflow python benchmarks/engine_operations.py base --rounds 5

Without it, the definition in `engine/forward.py` computes the same. Searches with a beam of 4 take turns in
one process, over one sentence and over 32, with random weights and up to 28 steps.
"""

import argparse
import importlib
import statistics
import time
from typing import Any

import keras
import numpy as np

from keras_attention import Transformer
from keras_attention.decoding.hypotheses import SearchRules
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.engine.operations import Operations

# Operations that only work together. Those on which the layout of the buffers depends are no choice.
GROUPS = {
    "tensorflow": [("embed",), ("prepare_softmax",), ("norm",)],
    "torch": [
        *(("embed",), ("linear", "prepare_matrix", "prepare_softmax", "activation")),
        *(("norm", "prepare_norm"), ("heads",), ("attend",), ("top_log_probs",)),
    ],
}
CLASSES = {"tensorflow": "TensorFlow", "torch": "Torch"}
MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"vocabulary_size": 2000, "hidden_dim": 128, "intermediate_dim": 512, "num_heads": 4},
    "base": {"vocabulary_size": 8000, "hidden_dim": 512, "intermediate_dim": 2048, "num_heads": 8},
}
STEPS, LENGTH = 28, 20
# Sentences of a search, and searches of a turn.
BATCHES = ((1, 6), (32, 1))


def main() -> None:
    """Measure and print a line for each group of operations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    backend = keras.backend.backend()
    spec = Transformer(num_layers=2, **MODELS[options.model], seed=1).spec()
    whole = engine_of(spec, backend)
    for names in GROUPS[backend]:
        lacking = engine_of(spec, backend, names)
        shown = []
        for rows, count in BATCHES:
            for engine in (whole, lacking):
                seconds(engine, rows, 1)  # compiles
            turns = [
                (seconds(whole, rows, count), seconds(lacking, rows, count))
                for _ in range(options.rounds)
            ]
            ratios = [without / with_all for with_all, without in turns]
            shown.append(
                f"{rows} at a time {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        print(f"{backend}, {options.model}, {names[0]}: {', '.join(shown)}", flush=True)


def engine_of(spec: Any, backend: str, without: tuple[str, ...] = ()) -> Any:
    """Return an engine with its weights, some of whose operations are the definitions."""
    module = importlib.import_module(f"keras_attention.engine.{backend}")
    name = CLASSES[backend]
    own = getattr(module, f"{name}Operations")
    definitions = {each: getattr(Operations, each) for each in without}
    setattr(module, f"{name}Operations", type(own.__name__, (own,), definitions))
    try:
        engine = getattr(module, f"{name}Engine")(spec, "float32")
        engine.read_weights()
    finally:
        setattr(module, f"{name}Operations", own)
    return engine


def seconds(engine: Any, rows: int, count: int) -> float:
    """Return the time of so many searches over so many sentences, of 15 to 20 tokens."""
    random = np.random.default_rng(0)
    ids = random.integers(3, engine.spec.vocabulary_size, (rows, LENGTH), dtype="int32")
    for row in range(rows):
        ids[row, LENGTH - row % 6 :] = engine.spec.pad_token_id
    rules = SearchRules(4, engine.spec.start_token_id, 2, engine.spec.pad_token_id, 0.6)
    limits = np.full(rows, STEPS, "int32")
    start = time.perf_counter()
    for _ in range(count):
        incremental_search(engine.start(ids, 4, STEPS), limits, rules, "best", STEPS)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
