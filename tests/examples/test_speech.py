"""The example that transcribes digits: data from outside, features, errors, and a whole short run."""

import functools
import io
import itertools
import json
import wave

import numpy as np
import pytest
import spoken_digits

from examples import speech
from tests.data.archive_server import serving, write_archive

pytestmark = pytest.mark.backends("torch")


def wav(samples, channels=1, width=2, rate=8000):
    """The bytes of a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes((np.asarray(samples) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def tone(hertz, seconds):
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(8000 * seconds)) / 8000)


@functools.cache
def files():
    """Each digit is a tone, of two speakers; indices 4 and 5, which are a test and a training one."""
    return {
        f"{digit}_{speaker}_{index}.wav": wav(tone(300 * (digit + 1), 0.1 + 0.02 * digit + length))
        for digit, (speaker, length), index in itertools.product(
            range(10), [("ann", 0.0), ("bob", 0.05)], [4, 5]
        )
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data" / "recordings").mkdir(parents=True)
    for name, content in files().items():
        (tmp_path / "data" / "recordings" / name).write_bytes(content)
    return tmp_path / "data"


def test_a_folder_is_read_and_split(folder):
    (folder / "recordings" / "notes.wav").write_bytes(b"no recording")
    recordings = spoken_digits.load_recordings(folder)
    assert {(r.digit, r.speaker, r.number) for r in recordings} == {
        (digit, speaker, index)
        for digit in range(10)
        for speaker in ("ann", "bob")
        for index in (4, 5)
    }
    three = next(r for r in recordings if (r.digit, r.speaker) == (3, "ann"))
    np.testing.assert_allclose(three.samples, tone(1200, 0.16), atol=1e-4)
    parts = spoken_digits.split(recordings, "bob")
    assert {name: {(r.speaker, r.number) for r in part} for name, part in parts.items()} == {
        "training": {("ann", 5)},
        "held-out recordings": {("ann", 4)},
        "held-out speaker": {("bob", 4), ("bob", 5)},
    }
    with pytest.raises(ValueError, match="one of ann, bob.*Received: eve"):
        spoken_digits.split(recordings, "eve")


@pytest.mark.parametrize(
    "content",
    [b"", b"RIFF", wav(tone(300, 1), channels=2), wav(tone(300, 1), rate=16000), wav([0.1] * 9)],
)
def test_what_is_no_recording_is_named(content, folder):
    (folder / "recordings" / "3_ann_9.wav").write_bytes(content)
    with pytest.raises(ValueError, match="3_ann_9.wav"):
        spoken_digits.load_recordings(folder)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="--data-dir.*holds no recordings"):
        spoken_digits.load_recordings(tmp_path)


def test_the_archive_is_downloaded_once_and_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    members = {f"fsdd-1/recordings/{name}": content for name, content in files().items()}
    write_archive(tmp_path / "fsdd.tar.gz", {"fsdd-1/README.md": b"x", **members})
    with serving(tmp_path) as server:
        url = f"{server.url}/fsdd.tar.gz"
        with pytest.raises(ValueError, match="40 recordings.*not those of commit 26eb9aa"):
            spoken_digits.load_recordings(None, url)
        assert not list((tmp_path / "cache").rglob("*.gz"))
        digest = spoken_digits.hashlib.sha256(b"".join(files()[name] for name in sorted(files())))
        monkeypatch.setattr(spoken_digits, "SHA256", digest.hexdigest())
        before = len(server.asked)
        for _ in range(2):
            recordings = spoken_digits.load_recordings(None, url)
        assert len(recordings) == 40 and len(server.asked) == before + 1


def test_recordings_of_one_speaker_are_joined(folder):
    recordings = spoken_digits.load_recordings(folder)
    longest = spoken_digits.MOST_FRAMES * spoken_digits.HOP
    generator = np.random.default_rng(1)
    length_of = {(spoken_digits.WORDS[r.digit], r.speaker): len(r.samples) for r in recordings}
    numbers = set()
    for _ in range(60):
        utterance = spoken_digits.join(recordings, generator)
        words = utterance.text.split()
        numbers.add(len(words))
        lengths = [sum(length_of[word, speaker] for word in words) for speaker in ("ann", "bob")]
        pauses = [len(utterance.samples) - length for length in lengths]
        assert any(0 <= pause < (len(words) - 1) * 1600 + 1 for pause in pauses)
        assert (
            len(utterance.samples) <= longest and len(utterance.text) < spoken_digits.LONGEST_TEXT
        )
    assert numbers == {1, 2, 3}


def test_a_tone_is_loudest_in_the_band_that_holds_it():
    """Corners of the bands by the formula of the mel scale, one by one."""
    mels = np.linspace(*(2595 * np.log10(1 + hertz / 700) for hertz in (60, 4000)), 42)
    corners = 700 * (10 ** (mels / 2595) - 1)
    for hertz in (500, 1500, 3000):
        power = np.abs(np.fft.rfft(tone(hertz, 0.025), spoken_digits.FFT)) ** 2
        band = int((power @ spoken_digits.FILTERS).argmax())
        assert corners[band] - 40 < hertz < corners[band + 2] + 40


def test_features_have_a_row_for_each_10_ms():
    noise = np.random.default_rng(2).normal(size=8000).astype("float32")
    features = spoken_digits.log_mel(noise)
    assert features.shape == (1 + (8000 - 200) // 80, 40) and features.dtype == np.float32
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=0.01)
    np.testing.assert_allclose(spoken_digits.log_mel(0.1 * noise), features, atol=0.01)


def test_a_batch_is_padded_and_shifted():
    noise = np.random.default_rng(2).normal(size=2000).astype("float32")
    inputs, labels = speech.to_batch(
        [spoken_digits.Utterance(noise, "six"), spoken_digits.Utterance(noise[:900], "one two")]
    )
    assert [speech.decode(row) for row in labels] == ["six", "one two"]
    assert labels[0].tolist()[3:] == [speech.END] + [speech.PAD] * (spoken_digits.LONGEST_TEXT - 4)
    np.testing.assert_array_equal(inputs["decoder_token_ids"][:, 1:], labels[:, :-1])
    assert not inputs["decoder_token_ids"][:, 0].any()
    # 1 + (2000 - 200) // 80 = 23 frames and 9, four of which are a position.
    assert inputs["is_real"].sum(axis=1).tolist() == [6, 3] and inputs["is_real"][0, :6].all()
    assert np.abs(inputs["features"][0, 22]).max() > 0 == np.abs(inputs["features"][0, 23:]).max()


def fewest_edits(one, other):
    """By trying all that may be done to the first words."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        fewest_edits(one[1:], other) + 1,
        fewest_edits(one, other[1:]) + 1,
        fewest_edits(one[1:], other[1:]) + (one[0] != other[0]),
    )


def test_word_errors_are_the_fewest_edits():
    generator = np.random.default_rng(3)
    for _ in range(40):
        one, other = (
            list(generator.choice(["one", "two", "six"], generator.integers(5))) for _ in range(2)
        )
        assert speech.word_errors(" ".join(one), " ".join(other)) == fewest_edits(one, other)


SMALL = ["--steps", "1", "--batch-size", "3", "--width", "8", "--layers", "1"]


def test_a_short_run(folder, tmp_path, capsys):
    places = ["--data-dir", str(folder), "--output-dir", str(tmp_path / "out")]
    speech.main([*SMALL, *places, "--test-utterances", "9", "--held-out-speaker", "bob"])
    results = json.loads((tmp_path / "out" / "speech.json").read_text())
    assert {"word error rate, held-out recordings", "word error rate, held-out speaker"} < {
        *results
    }
    assert (tmp_path / "out" / "speech.png").read_bytes().startswith(b"\x89PNG")
    assert "keras_attention_viewer" in (tmp_path / "out" / "attention.html").read_text("utf-8")
    assert "held-out recordings: 10 recordings of 1 speakers" in capsys.readouterr().out


def test_letters_look_at_what_was_said():
    options = speech.parser().parse_args([*SMALL, "--output-dir", "out"])
    utterance = spoken_digits.Utterance(tone(700, 0.4).astype("float32"), "nine")
    weights = speech.cross_attention(speech.make_model(options), utterance)
    for layer in weights:
        assert layer.shape == (4, 5, 10)  # four heads; "nine" and the end; 38 frames
        np.testing.assert_allclose(layer.sum(axis=2), 1, atol=1e-5)
    assert len(weights) == 2


def test_the_viewer_shows_letters_over_seconds():
    random = np.random.default_rng(8)
    weights = [random.dirichlet(np.ones(3), (4, 8)) for _ in range(2)]
    utterance = spoken_digits.Utterance(np.zeros(1000, "float32"), "six one")
    made = speech.entry(utterance, weights, 7)
    tokens = made.header["tokens"]
    assert [token["text"] for token in tokens["source"]] == ["0.00", "0.04", "0.08"]
    read = [(token["text"], token["word"]) for token in tokens["decoder_input"]]
    assert " ".join(text for text, _ in read) == "<start> ▁s i x ▁ o n e"
    assert [word for _, word in read] == [None, 0, 0, 0, 1, 1, 1, 1]
    predicted = [token["text"] for token in tokens["decoder_output"]]
    assert predicted == [*(text for text, _ in read[1:]), "<end>"]
    np.testing.assert_allclose(made.weights["cross"][1] / 65535, weights[1], atol=1e-4)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--steps", "0"], "--steps"),
        (["--width", "6"], "multiple of 4"),
        (["--rate", "0"], "--rate"),
        (["--data-dir", "absent"], "--data-dir"),
        (["--held-out-speaker", "eve"], "--held-out-speaker"),
    ],
)
def test_wrong_options_are_refused(options, message, folder, tmp_path, refused_by):
    places = ["--data-dir", str(folder), *options, "--output-dir", str(tmp_path / "out")]
    assert message in refused_by(speech.main, places)
    assert not (tmp_path / "out").exists()
