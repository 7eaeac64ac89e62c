"""The plugin in a real TensorBoard process, with both of its loaders."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attention import SummaryWriter
from keras_attention_viewer import Entry
from keras_attention_viewer.codec import PLUGIN_NAME, encode_header, entry_tag
from keras_attention_viewer.tensorboard_data import AttentionData
from tests.helpers import python
from tests.viewer.entries import random_entry
from tests.viewer.served import NEEDS_PLUGIN, ROOT, tensorboard, until

TAG = entry_tag(0)
STEPS = [10 * i for i in range(60)]

pytestmark = [pytest.mark.backends("torch"), NEEDS_PLUGIN]


def entry_at(step, seed=0, **options):
    """An entry whose random weights follow from its step."""
    return random_entry(np.random.default_rng([seed, step]), step, **options)


def write(folder, entries, **options):
    with SummaryWriter(folder, **options) as writer:
        for entry in entries:
            tag = entry_tag(0, entry.header["target"])
            writer.blobs(tag, entry.to_blobs(), entry.header["step"], PLUGIN_NAME)
        return writer.path


def write_runs(folder):
    """A good run, and one of each kind that is not."""
    write(folder / "good", [*map(entry_at, STEPS), entry_at(590, target="output")])
    with SummaryWriter(folder / "good", resumes=False) as writer:
        for step in (0, 50):
            writer.scalar("train/loss", 5 - step / 100, step)
        writer.scalar("quality/loss", 3.25, 70)  # resumed with a newer version
        writer.scalar("epoch_loss", 9.0, 1)  # counted in epochs
        writer.scalar("validation/bleu", 27.5, 50)
    with SummaryWriter(folder / "no_attention") as writer:
        writer.scalar("train/loss", 1.0, 1)
    with SummaryWriter(folder / "good" / "validation") as writer:
        writer.scalar("train/loss", 6.0, 1)
    old = entry_at(0)
    with SummaryWriter(folder / "old") as writer:
        blobs = [encode_header({**old.header, "version": 0}), *old.to_blobs()[1:]]
        writer.blobs(TAG, blobs, 0, PLUGIN_NAME)
    path = write(folder / "cut", [entry_at(0), entry_at(10)])
    path.write_bytes(path.read_bytes()[:-20])
    write(folder / "sizes", [entry_at(0), entry_at(10, heads=4)])
    write(folder / "resumed", [entry_at(step, seed=1) for step in (0, 10, 20, 30, 40)])
    write(folder / "resumed", [entry_at(step, seed=2) for step in (20, 30, 50)])
    write(folder / "unmarked", [entry_at(step) for step in (0, 20, 40)], resumes=False)
    write(folder / "unmarked", [entry_at(step) for step in (10, 30, 50)], resumes=False)


@pytest.fixture(scope="module", params=["true", "false"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard") / "logs"
    write_runs(folder)
    slow = request.param == "false"  # Python's loader, which reads by TensorFlow where there is one
    with tensorboard(folder, "--load_fast", request.param, tensorflow=slow) as running:
        until(lambda: is_loaded(running.runs()))
        yield running


def is_loaded(runs):
    """Whether all runs are there with their last steps: TensorBoard reads them bit by bit."""
    last = {
        name: run["sentences"][0]["steps"][-1] for name, run in runs.items() if run["sentences"]
    }
    ends = {"good": 590, "resumed": 50, "unmarked": 50}
    return len(runs) == 8 and ends.items() <= last.items()


def stored(server, run, step, seed=0):
    """The entry that the server has of a step."""
    query = {"run": run, "tag": TAG, "step": step}
    status, header = server.attention("header", **query)
    assert status == 200, header
    weights = {}
    for kind in header["kinds"]:
        shape = entry_at(step, seed).weights[kind["name"]][0].shape
        weights[kind["name"]] = [
            np.frombuffer(
                server.attention("weights", kind=kind["name"], layer=layer, **query)[1], "<u2"
            ).reshape(shape)
            for layer in range(kind["layers"])
        ]
    return Entry(header, weights)


def assert_equal(entry, expected):
    assert entry.header == expected.header
    for kind, layers in expected.weights.items():
        for layer, other in zip(entry.weights[kind], layers, strict=True):
            np.testing.assert_array_equal(layer, other)


def test_all_steps_are_there_and_are_what_was_logged(server):
    run = server.runs()["good"]
    reference, output = run["sentences"]
    assert (reference["tag"], output["tag"]) == (TAG, entry_tag(0, "output"))
    assert reference["steps"] == STEPS
    assert output["steps"] == [590]
    assert reference["text"] == "the old dogs sleep."
    assert reference["target_text"] == "alte Hunde schlafen."
    assert run["scalars"] == {"loss": [[0, 5.0], [50, 4.5], [70, 3.25]], "bleu": [[50, 27.5]]}
    assert run["problems"] == []
    for step in (0, 300, 590):
        assert_equal(stored(server, "good", step), entry_at(step))


def test_what_is_wrong_with_a_run_is_said_and_the_rest_goes_on(server):
    runs = server.runs()
    said = {name: " ".join(run["problems"]) for name, run in runs.items()}
    assert said["no_attention"] == said["good/validation"] == ""
    assert "version 0; this viewer reads version 1" in said["old"]
    assert runs["old"]["sentences"] == []
    assert "ends in the middle of a record" in said["cut"]
    assert runs["cut"]["sentences"][0]["steps"] == [0]
    assert "encoder of 2 layers with 3 heads" in said["sizes"]
    assert "encoder of 2 layers with 4 heads" in said["sizes"]
    assert runs["sizes"]["sentences"][0]["steps"] == [0, 10]
    status, answer = server.attention("header", run="old", tag=TAG, step=0)
    assert status == 422
    assert "version 0" in answer["error"]


def test_a_resumed_run_shows_each_step_once_as_it_was_written_last(server):
    run = server.runs()["resumed"]
    assert run["sentences"][0]["steps"] == [0, 10, 20, 30, 50]
    assert run["problems"] == []
    for step, seed in ((10, 1), (20, 2), (30, 2)):
        assert_equal(stored(server, "resumed", step, seed), entry_at(step, seed))


def test_a_resumed_run_that_does_not_say_so_shows_each_step_once(server):
    """TensorBoard's fast loader drops what was written again; the other one keeps both parts."""
    run = server.runs()["unmarked"]
    steps = run["sentences"][0]["steps"]
    assert steps in ([0, 10, 30, 50], [0, 10, 20, 30, 40, 50])
    assert any("resumed without marking" in problem for problem in run["problems"]) == (40 in steps)


GOOD = {"run": "good", "tag": TAG, "step": 0, "kind": "cross", "layer": 0}
ABSENT = [
    *[{"run": run} for run in ("else", "../good", "")],
    *[{"tag": tag} for tag in ("attention/1/reference", "../../etc/passwd")],
    *[{"step": step} for step in (5, -10, "1e1", "9" * 30)],
    *[{"kind": "crossed"}, {"layer": 2}, {"layer": -1}],
]
OTHER_FILES = [
    *["../codec.py", "%2e%2e/codec.py", "..%2f..%2fpyproject.toml", "static/index.js"],
    *["index.js/../../codec.py", "%2fetc%2fpasswd", "codec.py"],
]


def test_what_is_not_there_is_not_found(server):
    assert server.attention("weights", **GOOD)[0] == 200
    for change in ABSENT:
        status, answer = server.attention("weights", **{**GOOD, **change})
        assert status == 404, change
        assert "Traceback" not in answer["error"], change


def test_no_other_file_is_served(server):
    for path in OTHER_FILES:
        status, content = server.get(f"data/plugin/attention/{path}")
        assert status == 404, path
        assert b"Traceback" not in content, path


def test_the_tab_is_there_with_its_files(server):
    status, content = server.get("data/plugins_listing")
    assert status == 200
    assert b'"tab_name": "Attention"' in content.replace(b'":"', b'": "')
    for file in sorted((ROOT / "keras_attention_viewer" / "static").iterdir()):
        status, content = server.get(f"data/plugin/attention/{file.name}")
        assert (status, content) == (200, file.read_bytes())
    assert "Traceback" not in server.log


class Provider:
    """Stands for TensorBoard's: runs of one sentence whose blobs are their keys."""

    def __init__(self):
        self.runs = {}

    def read_blob_sequences(self, ctx, **options):
        return {
            name: {TAG: [SimpleNamespace(step=0, wall_time=1.0, values=values)]}
            for name, values in self.runs.items()
        }

    def read_scalars(self, ctx, **options):
        return {}

    def list_runs(self, ctx, **options):
        return [SimpleNamespace(run_name=name) for name in self.runs]

    def read_blob(self, ctx, blob_key):
        return blob_key


def test_of_runs_that_are_gone_nothing_is_kept():
    provider = Provider()
    values = [SimpleNamespace(blob_key=blob) for blob in entry_at(0).to_blobs()]
    provider.runs = {"one": values, "two": values}
    data = AttentionData(provider, None)
    assert [len(run["sentences"]) for run in data.index(None, "e")["runs"]] == [1, 1]
    assert data.index(None, "e")["runs"][0]["sentences"][0]["text"] == "the old dogs sleep."
    kept = [set(header) for _, header in data._looked.values()]
    assert kept == [{"kinds", "source_text", "target_text"}] * 2
    del provider.runs["one"]
    assert len(data.index(None, "e")["runs"]) == 1
    assert set(data._looked) == set(data._steps) == {("e", "two", TAG)}


@pytest.mark.parametrize("place", ["out", "out/logs"])
def test_a_run_alone_is_named_by_its_folder(tmp_path, place):
    """TensorBoard calls it "."."""
    provider = Provider()
    provider.runs = {".": [SimpleNamespace(blob_key=blob) for blob in entry_at(0).to_blobs()]}
    (run,) = AttentionData(provider, tmp_path / place).index(None, "e")["runs"]
    assert (run["name"], run["title"]) == (".", "out")


def test_the_plugin_loads_without_keras():
    code = """
import sys
from importlib.metadata import entry_points
from tensorboard.plugins.base_plugin import TBContext
(found,) = [one for one in entry_points(group="tensorboard_plugins") if one.name == "attention"]
plugin = found.load()().load(TBContext(data_provider=object(), logdir="."))
assert "/index" in plugin.get_plugin_apps()
heavy = {"keras", "keras_attention", "tensorflow", "jax", "torch", "matplotlib"}
print(sorted(heavy & set(sys.modules)))
"""
    assert python("-c", code).stdout.strip() == "[]"


def test_tensorboard_starts_with_a_broken_viewer(tmp_path):
    broken = tmp_path / "broken" / "keras_attention_viewer"
    shutil.copytree(ROOT / "keras_attention_viewer", broken)
    (broken / "codec.py").write_text("raise ImportError('broken on purpose')\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    paths = {"PYTHONPATH": str(broken.parent)}
    with tensorboard(logs, environment=paths) as running:
        status, content = running.get("data/plugins_listing")
        assert status == 200
        assert b"scalars" in content and b"attention" not in content
        assert "broken on purpose" in running.log
