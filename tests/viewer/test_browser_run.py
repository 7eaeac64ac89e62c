"""The Attention tab on a real run of the example, in a real TensorBoard and a real browser."""

import keras
import numpy as np
import pytest

from keras_attention import Translator
from tests.helpers import python
from tests.recipes.small_runs import write_files
from tests.viewer.looks import expect_text, values
from tests.viewer.served import NEEDS_PLUGIN, tensorboard, until

pytestmark = [pytest.mark.backends("torch"), NEEDS_PLUGIN]
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
    command = ["examples/wmt14_en_de.py", *(f"--{name}={value}" for name, value in options.items())]
    python(*command, "--validation-files", *validation, "--test-files", *test)
    return folder / "out"


@pytest.fixture
def tab(tab_visits, run_folder):
    """The tab's frame, when TensorBoard has read the last step."""
    with tensorboard(run_folder / "logs", "--reload_interval", "1") as server:
        until(lambda: steps_of(server) and steps_of(server)[-1] == UPDATES)
        page = tab_visits.open(
            f"{server.address}#attention&p.attention.view=matrix&p.attention.words=0",
            viewport={"width": 2600, "height": 1500},
        )
        frame = page.frame_locator("iframe")
        frame.locator(".picture .title").wait_for()
        yield frame
        page.goto("about:blank")  # nothing is asked of a server that has ended


def steps_of(server):
    """The steps of the first sentence that TensorBoard has read so far."""
    sentences = [one for run in server.runs().values() for one in run["sentences"]]
    return sentences[0]["steps"] if sentences else []


def test_the_tab_shows_the_weights_of_the_trained_model(tab, run_folder):
    translator = Translator.from_run(run_folder)
    model, tokenizer = translator.model, translator.tokenizer
    expect_text(tab.locator(".step"), f"step {UPDATES}")
    # TensorBoard calls this run "."; the viewer names it by its folder.
    expect_text(tab.get_by_label("Run", exact=True).locator("option"), "out")
    option = tab.get_by_label("Sentence").locator("option").first.inner_text()
    source = option.split(". ", 1)[1].strip("\u2068\u2069")  # around words from the right
    sources = (run_folder.parent / "valid.en").read_text("utf-8").splitlines()
    targets = (run_folder.parent / "valid.de").read_text("utf-8").splitlines()
    target = targets[sources.index(source)]
    ids = [*tokenizer.encode(source), tokenizer.end_token_id]
    read = [tokenizer.start_token_id, *tokenizer.encode(target)]
    scores = model.attention_scores(np.array([ids]), np.array([read]))
    for kind, layer, head in (("cross", 2, 3), ("encoder", 1, 2)):
        tab.get_by_role("button", name=kind.capitalize(), exact=True).click()
        tab.get_by_label("Layer", exact=True).select_option(label=str(layer))
        tab.get_by_role("button", name=f"Head {head}", exact=True).click()
        expect_text(
            tab.locator(".picture .title"), f"{kind.capitalize()} · layer {layer} · head {head}"
        )
        expected = keras.ops.convert_to_numpy(scores[kind][layer - 1])[0, head - 1]
        np.testing.assert_allclose(values(tab), expected.ravel(), atol=0.00501)
    # Before the first update it was another model.
    tab.get_by_role("slider", name="Step").press("Home")
    expect_text(tab.locator(".step"), "step 0")
    assert np.abs(values(tab) - expected.ravel()).max() > 0.02
