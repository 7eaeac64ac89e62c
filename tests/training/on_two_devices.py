"""What two logical devices of one process compute, which come before the backend starts.

`python -m tests.training.on_two_devices FOLDER` is that process: `FOLDER/certificate.json` is what
tools/verify_parallelism.py finds, and `FOLDER/found.json`, on TensorFlow, what replicas of
MirroredStrategy compute beside.
"""

import dataclasses
import json
import sys
from pathlib import Path

import keras
import numpy as np

import tests.conftest  # noqa: F401  How tests set the backend up.
from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer, WeightedTransformer
from keras_attention.recipes import train_translation
from keras_attention.training.distribution import distribution_scope
from tests.recipes.small_runs import SMALL, small_corpus, training_alone
from tools import verify_parallelism

SIZES = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
# Two replicas hold unequal numbers of tokens.
SOURCE = np.array([[5, 6, 1, 0], [7, 1, 0, 0], [8, 9, 10, 1], [3, 4, 5, 1]])
LABELS = np.array([[4, 1, 0, 0, 0], [6, 1, 0, 0, 0], [5, 6, 7, 8, 1], [9, 8, 3, 7, 1]])
INPUTS = {
    "encoder_token_ids": SOURCE,
    "decoder_token_ids": np.pad(LABELS, ((0, 0), (1, 0)))[:, :-1],
}


def kept_after_infinity():
    """Adam on two replicas in two slices each; then one row weighs infinitely much."""
    with distribution_scope("mirrored", 2):
        model = Transformer(11, **SIZES, dropout=0.1, seed=3)
        model.compile(Adam(0.01), LabelSmoothedCrossentropy(), accumulation_steps=2)
        half = keras.optimizers.LossScaleOptimizer(Adam(0.01))
        try:
            model.from_config(model.get_config()).compile(half, LabelSmoothedCrossentropy())
            refused = ""
        except ValueError as error:
            refused = str(error)
    weights, states = np.ones(4), []
    for last in (1.0, np.inf, 1.0):
        weights[3] = last
        model.fit(INPUTS, LABELS, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
        states.append((model.get_weights(), model.optimizer.first_nonfinite))
    kept = all(
        (a == b).all() for other in states[1:] for a, b in zip(states[0][0], other[0], strict=True)
    )
    return [number for _, number in states], kept, refused


def branches(strategy):
    """kappa and alpha of a Weighted Transformer after three updates."""
    with distribution_scope(strategy, 2 if strategy else None):
        model = WeightedTransformer(11, **SIZES, dropout=0.0, seed=3)
        model.compile(Adam(0.01, simplex_learning_rate=0.1), LabelSmoothedCrossentropy())
    model.fit(INPUTS, LABELS, batch_size=4, epochs=3, shuffle=False, verbose=0)
    weights = [w for w in model.trainable_weights if w.path.endswith(("/kappa", "/alpha"))]
    return [keras.ops.convert_to_numpy(weight).tolist() for weight in weights]


def clipped(strategy):
    """The loss after each of three updates whose gradient is clipped, and the last norm."""
    with distribution_scope(strategy, 2 if strategy else None):
        model = Transformer(11, **SIZES, dropout=0.0, seed=3)
        model.compile(Adam(0.01, global_clipnorm=0.1), LabelSmoothedCrossentropy())
    fit = model.fit(INPUTS, LABELS, batch_size=4, epochs=3, shuffle=False, verbose=0)
    return [*fit.history["loss"], model.optimizer.gradient_norm]


def histories(folder):
    """Of a whole run on one device, and on two that accumulate over two slices each."""
    # No dropout: each replica, and each part, would draw other masks.
    config = dataclasses.replace(
        SMALL,
        model_arguments={**SIZES, "dropout": 0.0},
        steps=9,
        beam_size=1,
        attention_log=False,
        bleu_every=100,
    )
    shared = {"strategy": "mirrored", "replicas": 2, "accumulation_steps": 2}
    corpus, found = small_corpus(folder), []
    for name, changed in (("one", {}), ("shared", shared)):
        with training_alone():
            run = dataclasses.replace(config, **changed)
            found.append(train_translation(corpus, run, folder / name)["training"]["history"])
    return found


def main(folder):
    path = folder / "certificate.json"
    sys.argv[1:] = ["--json", str(path), *"--replicas 1 2 --accumulation-steps 4".split()]
    try:
        verify_parallelism.main()
    except SystemExit as ended:
        if ended.code:
            raise
    if keras.backend.backend() == "tensorflow":
        found = {
            "infinity": kept_after_infinity(),
            "clipped": [clipped(None), clipped("mirrored")],
            "branches": [branches(None), branches("mirrored")],
            "histories": histories(folder),
        }
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
