"""Transcribe spoken digits with the Transformer's layers: "seven three one", spelled letter by letter.

    python examples/speech.py --output-dir runs/speech

The Free Spoken Digit Dataset (3,000 recordings of six speakers, CC BY-SA 4.0) is downloaded once, 16 MB, or
read from `--data-dir`. Recordings of a speaker are joined, so the model must find out where one word ends and
the next begins. One speaker is never trained on. This is section 7 of "Attention Is All You Need": another
input, the same layers.
"""

import argparse
import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from spoken_digits import (
    HOP,
    LONGEST_TEXT,
    MELS,
    MOST_FRAMES,
    RATE,
    WORDS,
    Recording,
    Utterance,
    at_another_speed,
    join,
    load_recordings,
    log_mel,
    split,
)

from keras_attention.cli.options import Parser
from keras_attention.cli.streams import orderly_exit
from keras_attention.utils.checks import check_integer
from keras_attention.utils.files import atomic_file, write_json
from keras_attention_viewer import Entry, describe_tokens, make_entry, measured, save_html

PAD, END = 0, 1  # The start token is the padding token, as in the paper's code.
LETTERS = ["<pad>", "<end>", " ", *sorted({*"".join(WORDS)})]
STRIDE = 4  # The two convolutions make one position of four frames.


# From utterances to batches


def encode(text: str) -> list[int]:
    """Return the ids of the letters of a text, and the end token."""
    return [*map(LETTERS.index, text), END]


def decode(ids: Sequence[int]) -> str:
    """Return the text of ids, up to the end token."""
    ids = [int(token) for token in ids]
    ids = ids[: ids.index(END)] if END in ids else ids
    return "".join(LETTERS[token] for token in ids if token != PAD)


def to_batch(utterances: Sequence[Utterance]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the model's inputs and labels; always of the same shapes, so that it is compiled once."""
    rows = len(utterances)
    features = np.zeros((rows, MOST_FRAMES, MELS), "float32")
    is_real = np.zeros((rows, MOST_FRAMES // STRIDE), bool)
    labels = np.full((rows, LONGEST_TEXT), PAD, "int32")
    for row, utterance in enumerate(utterances):
        energies = log_mel(utterance.samples)[:MOST_FRAMES]
        features[row, : len(energies)] = energies
        is_real[row, : math.ceil(len(energies) / STRIDE)] = True
        ids = encode(utterance.text)
        labels[row, : len(ids)] = ids
    shifted = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=PAD)
    return {"features": features, "is_real": is_real, "decoder_token_ids": shifted}, labels


def batches(
    recordings: Sequence[Recording], size: int, seed: int
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield batches without end; the seed decides them all."""
    generator = np.random.default_rng(seed)
    while True:
        joined = (join(recordings, generator) for _ in range(size))
        yield to_batch([at_another_speed(utterance, generator) for utterance in joined])


# The model


def make_model(options: argparse.Namespace) -> Any:
    """Return the model: two strided convolutions, an encoder of vectors, a decoder of letters."""
    import keras

    from keras_attention import TransformerDecoder, TransformerEncoder

    class SpeechToText(keras.Model):
        """Transcribes log-mel energies `(B, frames, MELS)`."""

        def __init__(self, width: int, layers: int, seed: int):
            super().__init__(name="speech_to_text")
            common = {"num_heads": 4, "intermediate_dim": 2 * width, "normalize_first": True}
            start = [keras.initializers.GlorotUniform(seed + index) for index in range(2)]
            self.convolutions = [
                keras.layers.Conv1D(
                    width, 3, 2, "same", activation="relu", kernel_initializer=initializer
                )
                for initializer in start
            ]
            self.encoder = TransformerEncoder(layers, **common, seed=seed)
            self.decoder = TransformerDecoder(
                len(LETTERS), 2, width, **common, pad_token_id=PAD, seed=seed
            )

        def encode(self, features: Any, is_real: Any, training: bool | None = False) -> Any:
            """Return a vector for each four frames `(B, frames / 4, D)`."""
            x = features
            for convolution in self.convolutions:
                x = convolution(x)
            return self.encoder(x, padding_mask=is_real, training=training)

        def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
            encoded = self.encode(inputs["features"], inputs["is_real"], training)
            return self.decoder(
                inputs["decoder_token_ids"],
                encoded,
                encoder_padding_mask=inputs["is_real"],
                training=training,
            )

    return SpeechToText(options.width, options.layers, options.seed)


def train(model: Any, recordings: Sequence[Recording], options: argparse.Namespace) -> None:
    """Train with the paper's loss and optimizer; the rate rises, then falls to 0 along a cosine."""
    import keras

    from keras_attention import Adam, LabelSmoothedCrossentropy

    warmup = max(1, options.steps // 10)
    schedule = keras.optimizers.schedules.CosineDecay(
        1e-5, max(1, options.steps - warmup), warmup_target=options.rate, warmup_steps=warmup
    )
    model.compile(optimizer=Adam(schedule), loss=LabelSmoothedCrossentropy(0.1))
    model(next(batches(recordings, 1, options.seed))[0])  # which builds it
    a_part = min(100, options.steps)
    model.fit(
        batches(recordings, options.batch_size, options.seed),
        steps_per_epoch=a_part,
        epochs=math.ceil(options.steps / a_part),
        shuffle=False,
        verbose=2,
    )


# What it learned


def transcribe(model: Any, inputs: dict[str, np.ndarray], beam_size: int = 4) -> list[str]:
    """Return the most probable text of each row, found by beam search."""
    from keras_attention import beam_search

    rows = len(inputs["features"])
    encoded = model.encode(inputs["features"], inputs["is_real"])
    memory = model.decoder.memory(encoded, inputs["is_real"])

    def step(token_ids: Any, index: Any, cache: Any) -> Any:
        return model.decoder.decode_step(token_ids, index, memory, cache)

    result = beam_search(
        step,
        model.decoder.initial_cache(rows, beam_size, LONGEST_TEXT),
        np.full(rows, LONGEST_TEXT),
        beam_size,
        start_token_id=PAD,
        end_token_id=END,
    )
    return [decode(best[0]) for best in np.asarray(result.sequences)]


def word_errors(reference: str, hypothesis: str) -> int:
    """Return the fewest words to insert, delete or replace that make one text of the other."""
    expected, words = reference.split(), hypothesis.split()
    costs = [*range(len(words) + 1)]
    for row, word in enumerate(expected, start=1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(words, start=1):
            best = min(costs[column] + 1, costs[column - 1] + 1, diagonal + (word != other))
            diagonal, costs[column] = costs[column], best
    return costs[-1]


def word_error_rate(model: Any, utterances: Sequence[Utterance], size: int = 50) -> float:
    """Return the errors of the transcriptions as a share of the words that were said."""
    errors = words = 0
    for start in range(0, len(utterances), size):
        part = utterances[start : start + size]
        # The last batch is filled up, so that all have the same shape.
        inputs, _ = to_batch([*part, *utterances[: size - len(part)]][:size])
        for utterance, text in zip(part, transcribe(model, inputs), strict=False):
            errors += word_errors(utterance.text, text)
            words += len(utterance.text.split())
    return errors / words


def cross_attention(model: Any, utterance: Utterance) -> list[np.ndarray]:
    """Return the weights (N, letters, positions) of each decoder block."""
    import keras

    inputs, labels = to_batch([utterance])
    encoded = model.encode(inputs["features"], inputs["is_real"])
    _, scores = model.decoder(
        inputs["decoder_token_ids"],
        encoded,
        encoder_padding_mask=inputs["is_real"],
        training=False,
        return_cross_attention_scores=True,
    )
    letters, positions = int((labels[0] != PAD).sum()), int(inputs["is_real"].sum())
    return [keras.ops.convert_to_numpy(layer[0])[:, :letters, :positions] for layer in scores]


def entry(utterance: Utterance, weights: Sequence[np.ndarray], step: int) -> Entry:
    """Return the record for the attention viewer, in which a source token is the second where it begins."""
    seconds = [f"{i * STRIDE * HOP / RATE:.2f}" for i in range(weights[0].shape[2])]
    first, *rest = list(utterance.text.replace(" ", "▁"))  # A space begins a word.
    letters = [f"▁{first}", *rest]
    return make_entry(
        step,
        f"{utterance.text}, {len(utterance.samples) / RATE:.2f} seconds",
        utterance.text,
        describe_tokens(seconds),
        describe_tokens(["<start>", *letters], special=[0]),
        describe_tokens([*letters, "<end>"], special=[len(letters)]),
        {"cross": weights},
    )


def draw(path: Path, utterance: Utterance, weights: np.ndarray) -> None:
    """Write a picture: what was heard, and below it where each letter (letters, positions) looked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, figsize=(8, 5.2), sharex=True, height_ratios=(1, 1.6), layout="constrained"
    )
    energies = log_mel(utterance.samples)
    seconds = len(energies) * HOP / RATE
    above.imshow(energies.T, origin="lower", aspect="auto", extent=(0, seconds, 0, MELS))
    above.set_ylabel("mel band")
    shown = [*utterance.text.replace(" ", "␣"), "end"]
    extent = (0, weights.shape[1] * STRIDE * HOP / RATE, len(shown), 0)
    below.imshow(weights, aspect="auto", cmap="magma_r", extent=extent, interpolation="nearest")
    below.set_yticks(np.arange(len(shown)) + 0.5, shown, family="DejaVu Sans Mono")
    below.set(xlabel="seconds", ylabel="letter that is written", xlim=(0, seconds))
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=90)
    pyplot.close(figure)


def show(model: Any, utterances: Sequence[Utterance], options: argparse.Namespace) -> None:
    """Write the picture of the longest text, the last block's mean, and all heads of five texts."""
    texts = {utterance.text: utterance for utterance in utterances}
    longest = [texts[text] for text in sorted(texts, key=len, reverse=True)[:5]]
    weights = [cross_attention(model, utterance) for utterance in longest]
    draw(options.output_dir / "speech.png", longest[0], weights[0][-1].mean(axis=0))
    entries = [entry(*each, options.steps) for each in zip(longest, weights, strict=True)]
    save_html(
        options.output_dir / "attention.html", measured(entries), title="Speech", overwrite=True
    )


# The command


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(prog=Path(__file__).name, description=(__doc__ or "").splitlines()[0])
    add = made.add_argument
    add("--output-dir", type=Path, required=True, metavar="FOLDER", help="for results and picture")
    add("--data-dir", type=Path, metavar="FOLDER", help="a copy of the dataset (downloaded)")
    add("--held-out-speaker", default="theo", metavar="NAME", help="never trained on (theo)")
    add("--steps", type=int, default=3000, metavar="N", help="updates of training (3000)")
    add("--batch-size", type=int, default=32, metavar="N", help="utterances an update (32)")
    add("--width", type=int, default=64, metavar="N", help="the paper's d_model (64)")
    add("--layers", type=int, default=3, metavar="N", help="blocks of the encoder (3)")
    add("--rate", type=float, default=1e-3, metavar="X", help="highest learning rate (0.001)")
    add("--test-utterances", type=int, default=300, metavar="N", help="of each test (300)")
    add("--seed", type=int, default=1, metavar="N", help="of weights and batches (1)")
    return made


def checked(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options; raise a ValueError for one out of range."""
    for name in ("steps", "batch_size", "width", "layers", "test_utterances"):
        check_integer(f"--{name.replace('_', '-')}", getattr(options, name), least=1)
    check_integer("--seed", options.seed, least=0, most=2**31 - 1)
    if options.width % 4 or not 0 < options.rate < 1:
        raise ValueError(
            "--width must be a multiple of 4, the number of heads, and --rate between 0 and 1. Received: "
            f"--width {options.width} --rate {options.rate}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("This script needs matplotlib: pip install -e '.[examples]'")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, transcribe what was held out, draw where the letters looked."""
    with orderly_exit(parser().prog):
        options = checked(parser().parse_args(arguments))
        parts = split(load_recordings(options.data_dir), options.held_out_speaker)
        for name, part in parts.items():
            print(f"{name}: {len(part):,} recordings of {len({r.speaker for r in part})} speakers")

        from keras_attention.cli.quiet import start_backend

        start_backend()
        options.output_dir.mkdir(parents=True, exist_ok=True)
        model = make_model(options)
        train(model, parts.pop("training"), options)

        results: dict[str, Any] = {"steps": options.steps, "seed": options.seed}
        for name, part in parts.items():
            # The tests are the same whatever the seed of the training.
            generator = np.random.default_rng(2017)
            utterances = [join(part, generator) for _ in range(options.test_utterances)]
            rate = word_error_rate(model, utterances)
            results[f"word error rate, {name}"] = rate
            words = sum(len(utterance.text.split()) for utterance in utterances)
            print(f"word error rate, {name}: {rate:.1%} of {words:,} words")
            if name == "held-out recordings":
                shown = utterances
        write_json(options.output_dir / "speech.json", results)
        show(model, shown, options)
        print(f"Results, the picture and attention.html are in {options.output_dir}")


if __name__ == "__main__":
    main()
