"""Transcribe spoken digits with the Transformer's layers: "seven three one", spelled letter by letter.

    python examples/speech.py --output-dir runs/speech

The Free Spoken Digit Dataset (3,000 recordings of six speakers, CC BY-SA 4.0) is downloaded once, 16 MB, or
read from `--data-dir`. Recordings of a speaker are joined, so the model must find out where one word ends and
the next begins. One speaker is never trained on. This is section 7 of "Attention Is All You Need": another
input, the same layers.
"""

import argparse
import hashlib
import importlib.util
import io
import math
import re
import tarfile
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.cli.exits import orderly_exit
from keras_attention.cli.options import Parser
from keras_attention.data.download import download
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.checks import check_integer
from keras_attention.utils.files import atomic_file, write_json

# What the data are: one commit of the dataset, whose recordings have this checksum, joined by their names.
COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
ARCHIVE = f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{COMMIT}.tar.gz"
SHA256 = "ddb17656a0bca4c5ddace082be188ca630516dc2ef1110afe3c4e9cc71173de4"
NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.wav")
RATE = 8000  # samples a second
LARGEST_WAV, LARGEST_ARCHIVE = 1 << 20, 1 << 27
TEST_NUMBERS = range(5)  # Recordings 0 to 4 are the dataset's own test set.

# What the model reads and writes.
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PAD, END = 0, 1  # The start token is the padding token, as in the paper's code.
LETTERS = ["<pad>", "<end>", " ", *sorted({*"".join(WORDS)})]
MOST_WORDS, LONGEST_TEXT = 3, 18
FRAME, HOP, FFT, MELS = 200, 80, 256, 40  # 25 ms every 10 ms
MOST_FRAMES, STRIDE = 192, 4  # The two convolutions make one position of four frames.


class Recording(NamedTuple):
    """One spoken digit."""

    digit: int
    speaker: str
    number: int  # which of the recordings of this digit by this speaker
    samples: np.ndarray  # float32, from -1 to 1


class Utterance(NamedTuple):
    """Joined recordings, and what was said."""

    samples: np.ndarray
    text: str


# Data


def read_wav(file: BinaryIO, name: str) -> Recording:
    """Read a recording, of which the name says what it is."""
    match = NAME.fullmatch(name)
    assert match is not None  # Files of other names are not opened.
    try:
        with wave.open(file) as sound:
            kind = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            content = sound.readframes(min(sound.getnframes(), LARGEST_WAV))
    except (wave.Error, EOFError) as error:
        raise ValueError(f"'{name}' is not a WAV file: {error}") from None
    if kind != (1, 2, RATE) or len(content) < 2 * FRAME:
        raise ValueError(
            f"'{name}' must have one channel of 16 bits, {RATE:,} samples a second, for at least 25 ms. "
            f"Received: {kind[0]} channels, {8 * kind[1]} bits, {kind[2]:,} a second, {len(content)} bytes"
        )
    samples = np.frombuffer(content, "<i2").astype("float32") / 2**15
    return Recording(int(match[1]), match[2], int(match[3]), samples)


def read_folder(folder: Path) -> list[Recording]:
    """Read all recordings in a folder, or in its folder `recordings`."""
    folder = folder / "recordings" if (folder / "recordings").is_dir() else folder
    files = [file for file in sorted(folder.glob("*.wav")) if NAME.fullmatch(file.name)]
    if not files:
        raise ValueError(
            f"--data-dir: '{folder}' holds no recordings, such as 7_theo_0.wav. It must be a copy of "
            "github.com/Jakobovski/free-spoken-digit-dataset. Without the option, it is downloaded."
        )
    recordings = []
    for path in files:
        with open(path, "rb") as file:
            recordings.append(read_wav(file, path.name))
    return recordings


def read_archive(path: Path) -> list[Recording]:
    """Read the recordings in the downloaded archive, in memory; nothing is extracted."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if member.isfile() and member.size <= LARGEST_WAV and NAME.fullmatch(name):
                    found[name] = archive.extractfile(member).read()  # type: ignore[union-attr]
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"'{path}' is not the dataset's archive: {error}") from None
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(found[name])
    if digest.hexdigest() != SHA256:
        raise ValueError(
            f"The {len(found):,} recordings in '{path}' are not those of commit {COMMIT[:7]}. Expected "
            f"sha256: {SHA256}. Received: {digest.hexdigest()}"
        )
    return [read_wav(io.BytesIO(found[name]), name) for name in sorted(found)]


def load_recordings(data_dir: Path | None, url: str = ARCHIVE) -> list[Recording]:
    """Read the recordings from a folder; or download them, once."""
    if data_dir is not None:
        return read_folder(data_dir)
    path = cache_folder("fsdd") / f"{COMMIT}.tar.gz"

    def check(part: Path) -> None:
        read_archive(part)

    return read_archive(download(url, path, None, validate=check, max_bytes=LARGEST_ARCHIVE))


def split(recordings: Sequence[Recording], speaker: str) -> dict[str, list[Recording]]:
    """Return what to train on, recordings held out of the same speakers, and a speaker held out."""
    speakers = sorted({recording.speaker for recording in recordings})
    if speaker not in speakers or len(speakers) < 2:
        raise ValueError(
            f"--held-out-speaker must be one of {', '.join(speakers)}, and not the only one. Received: "
            f"{speaker}"
        )
    others = [recording for recording in recordings if recording.speaker != speaker]
    parts = {
        "training": [r for r in others if r.number not in TEST_NUMBERS],
        "held-out recordings": [r for r in others if r.number in TEST_NUMBERS],
        "held-out speaker": [r for r in recordings if r.speaker == speaker],
    }
    for name, part in parts.items():
        if not part:
            raise ValueError(
                f"There are no recordings for the part '{name}'. Recordings 0 to 4 of each digit and speaker "
                "are held out, the others are for training: --data-dir must have both."
            )
    return parts


# From recordings to batches


def join(recordings: Sequence[Recording], generator: np.random.Generator) -> Utterance:
    """Join up to three recordings of one speaker, with pauses; stop before it gets too long."""
    first = recordings[int(generator.integers(len(recordings)))]
    chosen = [first, *_more(recordings, first.speaker, generator)]
    samples, words = np.zeros(0, "float32"), list[str]()
    for recording in chosen:
        pause = np.zeros(generator.integers(0, RATE // 5), "float32")
        longer = np.concatenate([samples, pause[: len(pause) if words else 0], recording.samples])
        if words and len(longer) > MOST_FRAMES * HOP:
            break
        samples = longer[: MOST_FRAMES * HOP]
        words.append(WORDS[recording.digit])
    return Utterance(samples, " ".join(words))


def _more(
    recordings: Sequence[Recording], speaker: str, generator: np.random.Generator
) -> Iterator[Recording]:
    """Yield none, one or two further recordings of a speaker."""
    number = generator.integers(MOST_WORDS)
    while number:
        recording = recordings[int(generator.integers(len(recordings)))]
        if recording.speaker == speaker:
            number -= 1
            yield recording


def at_another_speed(utterance: Utterance, generator: np.random.Generator) -> Utterance:
    """Return it up to a tenth slower or faster, and so lower or higher: five speakers are few."""
    length = len(utterance.samples)
    longer = min(int(length * generator.uniform(0.9, 1.1)), MOST_FRAMES * HOP)
    places = np.linspace(0, length - 1, longer)
    samples = np.interp(places, np.arange(length), utterance.samples).astype("float32")
    return Utterance(samples, utterance.text)


def mel_filters() -> np.ndarray:
    """Return triangles (FFT / 2 + 1, MELS) over the frequencies, equally wide on the mel scale."""

    def mel(hertz: Any) -> Any:
        return 2595 * np.log10(1 + hertz / 700)

    corners = np.interp(
        np.linspace(mel(60), mel(RATE / 2), MELS + 2), mel(np.arange(RATE / 2 + 1)), np.arange(RATE / 2 + 1)
    )  # fmt: skip
    hertz = np.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    return np.maximum(
        0, np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle))
    )


FILTERS = mel_filters().astype("float32")


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Return log-mel energies (frames, MELS), each band with mean 0 and deviation 1 in this utterance."""
    count = max(1, 1 + (len(samples) - FRAME) // HOP)
    frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP][:count]
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME), FFT)) ** 2
    energies = np.log(power @ FILTERS + 1e-6).astype("float32")
    return (energies - energies.mean(axis=0)) / (energies.std(axis=0) + 1e-3)


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


def cross_attention(model: Any, utterance: Utterance) -> np.ndarray:
    """Return the weights (letters, positions) of the last decoder block, the mean of its heads."""
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
    weights = keras.ops.convert_to_numpy(keras.ops.mean(scores[-1][0], axis=0))
    return weights[: int((labels[0] != PAD).sum()), : int(inputs["is_real"].sum())]


def draw(path: Path, utterance: Utterance, weights: np.ndarray) -> None:
    """Write a picture: what was heard, and below it where each letter looked."""
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
                shown = max(utterances, key=lambda utterance: len(utterance.text))
                draw(options.output_dir / "speech.png", shown, cross_attention(model, shown))
        write_json(options.output_dir / "speech.json", results)
        print(f"Results and picture are in {options.output_dir}")


if __name__ == "__main__":
    main()
