"""The example that draws digits: what it counts, what its models see, and a whole short run."""

import json
import math

import keras
import numpy as np
import pytest

from examples import images

pytestmark = pytest.mark.backends("torch")
SMALL = ["--steps", "1", "--width", "8", "--layers", "1", "--batch-size", "1347"]


def random_images(number, seed=3):
    return np.random.default_rng(seed).integers(0, images.LEVELS, (number, images.PIXELS))


class Stub:
    """A model that gives each image and pixel logits of its own, whatever it is shown."""

    def __init__(self, logits):
        self.logits = logits

    def predict(self, before, **_):
        return self.logits[: len(before)]


def test_a_histogram_is_counted_pixel_by_pixel():
    train, test = random_images(5), random_images(3, seed=4)
    total = 0.0
    for image in test:
        for pixel, level in enumerate(image):
            count = sum(other[pixel] == level for other in train)
            total -= math.log2((count + 0.5) / (5 + 0.5 * 17))
    got = images.histogram_bits(images.Digits(train, train[:1], test))
    assert got == pytest.approx(total / (3 * 64))


def test_bits_are_of_the_pixels_that_are_there():
    logits = np.random.default_rng(5).normal(size=(2, images.PIXELS, images.LEVELS))
    shown = random_images(2)
    total = 0.0
    for row, pixel in np.ndindex(shown.shape):
        chances = np.exp(logits[row, pixel])
        total -= math.log2(chances[shown[row, pixel]] / chances.sum())
    assert images.bits(Stub(logits), shown) == pytest.approx(total / shown.size)
    assert images.bits(Stub(0 * logits), shown) == pytest.approx(math.log2(17))


def test_the_lower_half_is_drawn_from_the_model():
    shown, certain = random_images(2), random_images(2, seed=6)
    logits = 100.0 * np.eye(images.LEVELS)[certain]
    completed = images.complete(Stub(logits), shown, seed=1)
    np.testing.assert_array_equal(completed[:, :32], shown[:, :32])
    np.testing.assert_array_equal(completed[:, 32:], certain[:, 32:])


@pytest.mark.parametrize("window", [None, 5])
def test_a_pixel_is_predicted_from_those_before_it(window):
    options = images.checked(images.parser().parse_args([*SMALL, "--output-dir", "out"]))
    model = images.make_model(window, options)
    shown = random_images(1)

    def changed(pixel):
        other = shown.copy()
        other[0, pixel] = (other[0, pixel] + 1) % images.LEVELS
        logits = [model(images.shifted(each)) for each in (shown, other)]
        difference = keras.ops.convert_to_numpy(keras.ops.abs(logits[0] - logits[1]))
        return np.flatnonzero(difference.max(axis=(0, 2)) > 1e-6)

    reach = 64 if window is None else 20 + 1 + window
    np.testing.assert_array_equal(changed(20), np.arange(21, reach))


def test_a_short_run(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    images.main([*SMALL, "--output-dir", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "images.json").read_text())
    scores = found["bits a dimension"]
    assert scores["uniform"] == pytest.approx(4.087, abs=1e-3)
    assert 2 < scores["histogram of each pixel"] < 3
    assert scores["full attention"] != scores["restricted attention"]
    assert (tmp_path / "out" / "images.png").read_bytes().startswith(b"\x89PNG")
    assert "restricted attention: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--steps", "0"], "--steps"),
        (["--window", "65"], "--window"),
        (["--width", "6"], "multiple of 4"),
        (["--rate", "nan"], "--rate"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_wrong_options_are_refused(options, message, tmp_path, refused_by):
    assert message in refused_by(images.main, [*options, "--output-dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
