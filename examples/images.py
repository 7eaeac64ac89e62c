"""Draw digits pixel by pixel with the Transformer's layers: full attention against restricted attention.

    python examples/images.py --output-dir runs/images

An image of scikit-learn's digits is a sequence of 64 pixels with 17 levels, row by row. A causal stack
predicts each pixel from those before it, once with full attention and once with attention restricted to the
last two rows, which section 7 of "Attention Is All You Need" proposes for large inputs. This is the Image
Transformer (Parmar et al. 2018) in miniature. Both are scored in bits a dimension on held-out images, and
both complete images of which they are shown the upper half. No download: the digits come with scikit-learn.
"""

import argparse
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.options import Parser
from keras_attention.cli.streams import orderly_exit
from keras_attention.utils.checks import check_integer
from keras_attention.utils.files import atomic_file, write_json

SIDE, LEVELS = 8, 17
PIXELS = SIDE * SIDE
START = LEVELS  # The token before the first pixel.
TWO_ROWS = 2 * SIDE


class Digits(NamedTuple):
    """Images as rows of pixels `(images, 64)`, integers from 0 to 16."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def load_digits() -> Digits:
    """Return the 1,797 digits, always in the same order: 1,347 to train on, 150 and 300 to score."""
    from sklearn import datasets

    images = datasets.load_digits().images.reshape(-1, PIXELS).astype("int32")
    images = images[np.random.default_rng(2018).permutation(len(images))]
    return Digits(images[:-450], images[-450:-300], images[-300:])


def histogram_bits(digits: Digits) -> float:
    """Return the bits a dimension of the test under each pixel's own histogram in the training images.

    Half a count is added to each level, so that none is impossible.
    """
    counts = np.full((PIXELS, LEVELS), 0.5)
    for image in digits.train:
        counts[np.arange(PIXELS), image] += 1
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.log2(shares[np.arange(PIXELS), digits.test]).mean())


def shifted(images: np.ndarray) -> np.ndarray:
    """Return what the model reads when it predicts the images: the pixel before each pixel."""
    return np.pad(images[:, :-1], ((0, 0), (1, 0)), constant_values=START)


def make_model(window: int | None, options: argparse.Namespace) -> Any:
    """Return a model from the pixels before to logits of the next: embedding, causal stack, softmax.

    Args:
        window: Number of pixels that a block sees; None for all.
        options: The command line.
    """
    import keras

    from keras_attention import TokenEmbedding, TransformerEncoder

    stack = TransformerEncoder(
        num_layers=options.layers,
        num_heads=4,
        intermediate_dim=2 * options.width,
        dropout=0.1,
        normalize_first=True,
        position_layout="learned",
        max_length=PIXELS,
        attention_window=window,
        seed=options.seed,
    )
    causal = np.tri(PIXELS, dtype=bool)[None]
    before = keras.Input((PIXELS,), dtype="int32")
    normal = keras.initializers.RandomNormal(stddev=options.width**-0.5, seed=options.seed)
    embedding = TokenEmbedding(
        LEVELS + 1, options.width, pad_token_id=None, embeddings_initializer=normal
    )
    start = keras.initializers.GlorotUniform(options.seed)
    logits = keras.layers.Dense(LEVELS, kernel_initializer=start)(
        stack(embedding(before), attention_mask=causal)
    )
    return keras.Model(before, logits)


def train(model: Any, digits: Digits, options: argparse.Namespace) -> None:
    """Train; keep the weights of the epoch that was best on the images for validation."""
    import keras

    from keras_attention import Adam

    per_epoch = math.ceil(len(digits.train) / options.batch_size)
    epochs = math.ceil(options.steps / per_epoch)
    schedule = keras.optimizers.schedules.CosineDecay(
        1e-5, epochs * per_epoch, warmup_target=options.rate, warmup_steps=per_epoch
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=Adam(schedule), loss=loss)
    keras.utils.set_random_seed(options.seed)
    model.fit(
        shifted(digits.train),
        digits.train,
        batch_size=options.batch_size,
        epochs=epochs,
        validation_data=(shifted(digits.validation), digits.validation),
        callbacks=[keras.callbacks.EarlyStopping(patience=epochs, restore_best_weights=True)],
        verbose=2,
    )


def log_probabilities(model: Any, images: np.ndarray) -> np.ndarray:
    """Return the natural logarithms `(images, 64, 17)` of the probability of each level."""
    logits = model.predict(shifted(images), batch_size=50, verbose=0).astype("float64")
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def bits(model: Any, images: np.ndarray) -> float:
    """Return the bits a dimension of images."""
    chosen = np.take_along_axis(log_probabilities(model, images), images[..., None], axis=-1)
    return float(-chosen.mean() / math.log(2))


def complete(model: Any, images: np.ndarray, seed: int) -> np.ndarray:
    """Return the images with their lower halves drawn from the model, one pixel after the other."""
    generator = np.random.default_rng(seed)
    images = images.copy()
    images[:, PIXELS // 2 :] = 0
    for pixel in range(PIXELS // 2, PIXELS):
        chances = np.exp(log_probabilities(model, images)[:, pixel])
        below = generator.random((len(images), 1)) < chances.cumsum(axis=1)
        images[:, pixel] = np.minimum(below.argmax(axis=1), LEVELS - 1)
    return images


def draw(path: Path, rows: dict[str, np.ndarray]) -> None:
    """Write a picture with a row of images for each name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = len(next(iter(rows.values())))
    figure, axes = pyplot.subplots(
        len(rows), columns, figsize=(0.62 * columns + 1.3, 0.68 * len(rows)), squeeze=False
    )
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image.reshape(SIDE, SIDE), cmap="gray_r", vmin=0, vmax=LEVELS - 1)
            axis.set(xticks=[], yticks=[])
            axis.axhline(SIDE / 2 - 0.5, color="tab:red", linewidth=0.8)
    figure.tight_layout(pad=0.3)
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=100)
    pyplot.close(figure)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(prog=Path(__file__).name, description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--output-dir", type=Path, required=True, metavar="FOLDER", help="for results and picture")
    add("--steps", type=int, default=1000, metavar="N", help="updates of each model (1000)")
    add("--batch-size", type=int, default=50, metavar="N", help="images an update (50)")
    add(
        "--window",
        type=int,
        default=TWO_ROWS,
        metavar="N",
        help="pixels of restricted attention (16)",
    )
    add("--width", type=int, default=64, metavar="N", help="the paper's d_model (64)")
    add("--layers", type=int, default=3, metavar="N", help="blocks (3)")
    add("--rate", type=float, default=2e-3, metavar="X", help="highest learning rate (0.002)")
    add("--seed", type=int, default=1, metavar="N", help="of weights, batches and drawings (1)")
    return made


def checked(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options; raise an error for one out of range, or without scikit-learn."""
    for name in ("steps", "batch_size", "width", "layers"):
        check_integer(f"--{name.replace('_', '-')}", getattr(options, name), least=1)
    check_integer("--window", options.window, least=1, most=PIXELS)
    check_integer("--seed", options.seed, least=0, most=2**31 - 1)
    if options.width % 4 or not 0 < options.rate < 1:
        raise ValueError(
            "--width must be a multiple of 4, the number of heads, and --rate between 0 and 1. Received: "
            f"--width {options.width} --rate {options.rate}"
        )
    for module, name in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"This script needs {name}: pip install -e '.[examples]'")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both models, score them on the test images, draw what they complete."""
    with orderly_exit(parser().prog):
        options = checked(parser().parse_args(arguments))
        digits = load_digits()
        scores = {"uniform": math.log2(LEVELS), "histogram of each pixel": histogram_bits(digits)}

        from keras_attention.cli.quiet import start_backend

        start_backend()
        options.output_dir.mkdir(parents=True, exist_ok=True)
        shown = digits.test[:12]
        rows = {"original": shown}
        for name, window in (("full", None), ("restricted", options.window)):
            print(f"{name} attention")
            model = make_model(window, options)
            train(model, digits, options)
            scores[f"{name} attention"] = bits(model, digits.test)
            for number in (1, 2):
                rows[f"{name}, {number}"] = complete(model, shown, options.seed + number)

        for name, score in scores.items():
            print(f"{name}: {score:.3f} bits a dimension")
        settings = {"steps": options.steps, "seed": options.seed, "window": options.window}
        write_json(options.output_dir / "images.json", {**settings, "bits a dimension": scores})
        draw(options.output_dir / "images.png", rows)
        print(f"Results and picture are in {options.output_dir}")


if __name__ == "__main__":
    main()
