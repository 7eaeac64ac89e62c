"""The Attention tab on a real run of the example, in a real TensorBoard and a real browser."""

import subprocess
import sys
import time
from importlib.metadata import entry_points

import keras
import numpy as np
import pytest

from keras_attention import Translator
from keras_attention_viewer.codec import PLUGIN_NAME
from tests.recipes.small_runs import write_files
from tests.viewer.looks import expect_text, texts
from tests.viewer.served import ROOT, tensorboard

pytestmark = [
    pytest.mark.backends("torch"),
    pytest.mark.skipif(
        not any(one.name == PLUGIN_NAME for one in entry_points(group="tensorboard_plugins")),
        reason="the entry point is not installed: pip install -e .",
    ),
]
UPDATES = 12


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run of seconds; the average of one checkpoint is the model of the last logged step."""
    folder = tmp_path_factory.mktemp("run")
    train = write_files(folder, "train", 0, 400)
    validation, test = write_files(folder, "valid", 400, 6), write_files(folder, "test", 406, 2)
    options = {
        "source-file": train[0],
        "target-file": train[1],
        "output-dir": folder / "out",
        "steps": UPDATES,
        "warmup-steps": 4,
        "average": 1,
        "checkpoint-updates": UPDATES,
        "num-layers": 2,
        "num-heads": 4,
        "hidden-dim": 16,
        "intermediate-dim": 20,
        "vocabulary-size": 600,
        "batch-tokens": 600,
        "max-shapes": 2,
        "beam-size": 1,
    }
    command = [sys.executable, "examples/wmt14_en_de.py"]
    command += [f"--{name}={value}" for name, value in options.items()]
    command += ["--validation-files", *map(str, validation), "--test-files", *map(str, test)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture
def tab(visits, run_folder):
    """The page and the tab's frame in it, when TensorBoard has read the last step."""
    with tensorboard(run_folder / "logs", "--reload_interval", "1") as server:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status, index = server.attention("index")
            steps = [one["steps"] for run in index.get("runs", []) for one in run["sentences"]]
            if status == 200 and steps and steps[0][-1:] == [UPDATES]:
                break
            time.sleep(0.2)
        viewport = {"width": 2600, "height": 1500}
        page = visits.open(
            f"{server.address}#attention&p.attention.view=matrix&p.attention.words=0",
            viewport=viewport,
        )
        frame = page.frame_locator("iframe")
        frame.locator(".picture .title").wait_for()
        yield page, frame
        page.goto("about:blank")  # nothing is asked of a server that has ended
    # TensorBoard's own pages complain about things that are not ours.
    visits.errors[:] = [text for text in visits.errors if "attention" in text]


def test_the_tab_shows_the_weights_of_the_trained_model(tab, run_folder):
    page, frame = tab
    translator = Translator.from_run(run_folder)
    model, tokenizer = translator.model, translator.tokenizer
    expect_text(frame.locator(".step"), f"step {UPDATES}")
    # TensorBoard calls this run "."; the viewer names it by its folder.
    expect_text(frame.get_by_label("Run", exact=True).locator("option"), "out")
    option = frame.get_by_label("Sentence").locator("option").first.inner_text()
    source = option.split(". ", 1)[1]
    sources = (run_folder.parent / "valid.en").read_text("utf-8").splitlines()
    targets = (run_folder.parent / "valid.de").read_text("utf-8").splitlines()
    target = targets[sources.index(source)]
    ids = [*tokenizer.encode(source), tokenizer.end_token_id]
    read = [tokenizer.start_token_id, *tokenizer.encode(target)]
    scores = model.attention_scores(np.array([ids]), np.array([read]))
    for kind, layer, head in (("cross", 2, 3), ("encoder", 1, 2)):
        frame.get_by_role("button", name=kind.capitalize(), exact=True).click()
        frame.get_by_label("Layer", exact=True).select_option(label=str(layer))
        frame.get_by_role("button", name=f"Head {head}", exact=True).click()
        expect_text(
            frame.locator(".picture .title"), f"{kind.capitalize()} · layer {layer} · head {head}"
        )
        expected = keras.ops.convert_to_numpy(scores[kind][layer - 1])[0, head - 1]
        shown = np.array([float(text) for text in texts(frame.locator(".values span"))])
        np.testing.assert_allclose(shown.reshape(expected.shape), expected, atol=0.00501)
    # Before the first update it was another model.
    before = np.array(shown)
    frame.get_by_role("slider", name="Step").press("Home")
    expect_text(frame.locator(".step"), "step 0")
    first = np.array([float(text) for text in texts(frame.locator(".values span"))])
    assert np.abs(first - before).max() > 0.01

    # Word, difference of two steps, play, keys, and the link of what is seen.
    frame.get_by_label("Compare with").select_option("step")
    expect_text(frame.locator(".pane h3"), "step 0 − step 1")
    difference = [float(t.replace("−", "-")) for t in texts(frame.locator(".values span"))]
    frame.get_by_label("Compare with").select_option("")
    frame.get_by_role("slider", name="Step").press("ArrowRight")
    expect_text(frame.locator(".step"), "step 1")
    second = np.array([float(text) for text in texts(frame.locator(".values span"))])
    np.testing.assert_allclose(difference, (first - second).ravel(), atol=0.0101)
    frame.locator(".matrix-rows li").nth(1).click()
    frame.locator(".readings q").first.wait_for()
    frame.get_by_role("button", name="Play").click()
    expect_text(frame.locator(".step"), f"step {UPDATES}")
    frame.locator("body").press("h")
    expect_text(frame.locator(".picture .title"), "Encoder · layer 1 · head 3")
    page.wait_for_url("**p.attention.heads=3**")
