"""The Free Spoken Digit Dataset: recordings of digits, joined to short utterances, as log-mel energies."""

import hashlib
import io
import re
import tarfile
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention.data.download import download
from keras_attention.utils.cache import cache_folder

# What the data are: one commit of the dataset, whose recordings have this checksum, joined by their names.
COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
ARCHIVE = f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{COMMIT}.tar.gz"
SHA256 = "ddb17656a0bca4c5ddace082be188ca630516dc2ef1110afe3c4e9cc71173de4"
NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.wav")
RATE = 8000  # samples a second
LARGEST_WAV, LARGEST_ARCHIVE = 1 << 20, 1 << 27
TEST_NUMBERS = range(5)  # Recordings 0 to 4 are the dataset's own test set.

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Utterances and their features.
MOST_WORDS, LONGEST_TEXT = 3, 18
FRAME, HOP, FFT, MELS = 200, 80, 256, 40  # 25 ms every 10 ms
MOST_FRAMES = 192


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

    return read_archive(download(url, path, check, LARGEST_ARCHIVE))


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
