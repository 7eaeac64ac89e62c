"""The comparison with the Weighted Transformer: what is made of the runs' numbers, and a whole small one."""

import dataclasses
import json

import common
import numpy as np
import pytest
import weighted_ablation
import weighted_transformer
from weighted_ablation import head_correlation
from weighted_run import BranchLog, branch_weights
from weighted_transformer import compared, shrink, start_ratio

from keras_attention import MetricsLog, Transformer, WeightedTransformer
from tests.helpers import numpy
from tests.recipes.small_runs import SMALL, small_corpus

pytestmark = pytest.mark.backends("torch")


def run(losses, pace, bleu=20.0):
    return {
        "updates": [50 * (i + 1) for i in range(len(losses))],
        "losses": losses,
        "seconds_per_update": pace,
        "perplexity": 5.0,
        "bleu": bleu,
        "parameters": 7,
        "branches": [],
    }


def test_the_report_compares_at_equal_updates_and_at_equal_minutes():
    runs = {
        "plain": [run([5, 4, 3], 1.0, 20.0), run([5, 4, 3], 1.0, 21.0)],
        "small_start": [run([5, 4.5, 3.5], 1.0, 24.0), run([5, 4.5, 4], 1.0, 17.0)],
        "weighted": [run([4, 3, 2], 2.0, 22.0), run([4, 2.5, 1.99], 2.0, 23.0)],
    }
    report = compared(runs)
    own = report["figures"]["weighted"]
    # The plain model needs 150 seconds; the slower one has made 75 updates by then.
    assert report["equal_seconds"] == 150
    np.testing.assert_allclose(own["loss_at_equal_minutes"], [3.5, 3.25])
    assert own["updates_to_plain_loss"] == [100, 100]
    assert report["figures"]["small_start"]["updates_to_plain_loss"] == [None, None]
    difference = report["differences"]["weighted"]
    assert difference["loss"]["resolved"] and abs(difference["loss"]["mean"] + 1.005) < 1e-9
    # +2 in both seeds: no noise at all. +4 and -4: nothing but noise.
    assert difference["bleu"] == {"mean": 2.0, "half_width": 0.0, "resolved": True}
    assert not report["differences"]["small_start"]["bleu"]["resolved"]


def test_the_control_starts_as_small_as_branches_do():
    model = Transformer(11, num_layers=2, hidden_dim=32, intermediate_dim=64, num_heads=4, seed=3)
    ratio = start_ratio(model)
    assert 0 < ratio < 0.5
    x = np.random.default_rng(1).standard_normal((4, 64, 32)).astype("float32")
    before = numpy(model.decoder_blocks[1].feed_forward(x))
    shrink(model, ratio)
    after = numpy(model.decoder_blocks[1].feed_forward(x))
    np.testing.assert_allclose(after, ratio * before, rtol=1e-4, atol=1e-6)


def test_the_log_of_branches_goes_on_where_the_run_does(tmp_path):
    model = WeightedTransformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    model.compile("adam", "mse")
    names = set(branch_weights(model))
    assert "encoder_block_1/self_attention/kappa" in names and len(names) == 4
    assert "decoder_block_1/cross_attention/alpha" in names
    log = BranchLog(MetricsLog(tmp_path / "branches.jsonl"), every=2)
    log.set_model(model)

    def train(batches):
        log.on_train_begin()
        for batch in range(batches):
            log.on_train_batch_begin(batch)
        log.on_epoch_end(0)

    train(7)
    assert [entry["update"] for entry in log.log.read()] == [0, 2, 4, 6]
    model.optimizer.iterations.assign(4)  # The last checkpoint was there.
    train(4)
    assert [entry["update"] for entry in log.log.read()] == [0, 2, 4, 6, 8]
    model.optimizer.iterations.assign(8)
    log.log.keep_until(6)  # The process was killed between the checkpoint and the entry.
    train(1)
    assert [entry["update"] for entry in log.log.read()] == [0, 2, 4, 6, 8]
    weights = log.log.read()[0]["encoder_block_1/self_attention/kappa"]
    np.testing.assert_allclose(weights, numpy(model.encoder_blocks[0].self_attention.kappa))


@pytest.fixture
def of_seconds(tmp_path, monkeypatch):
    """Makes the scripts' runs small."""
    settings = {"steps": 14, "bleu_every": common.NEVER, "averaged_checkpoints": 1, "beam_size": 1}
    config = dataclasses.replace(SMALL, attention_log=False, **settings)
    corpus = small_corpus(tmp_path)
    monkeypatch.setattr("keras_attention.recipes.loop.LOG_EVERY", 4)
    monkeypatch.setattr(weighted_transformer, "SMALL", config)
    monkeypatch.setattr(common, "corpus_of", lambda options: corpus)


def test_from_end_to_end_and_again(tmp_path, monkeypatch, of_seconds):
    folder = tmp_path / "out"

    def start(*arguments):
        options = ["--test-sentences", "3", "--seeds", "1", *arguments]
        parsed = weighted_transformer.parser().parse_args(options)
        return weighted_transformer.main(parsed, folder)

    report = start()
    written = json.loads((folder / "weighted_transformer.json").read_text("utf-8"))
    assert written["figures"] == report["figures"]
    assert written["runs"]["weighted"][0]["branches"]
    for system, runs in written["runs"].items():
        assert [run["updates"][-1] >= 7 for run in runs] == [True]
        for entry in (entry for run in runs for entry in run["branches"]):
            assert system == "weighted"
            sums = [sum(values) for name, values in entry.items() if name != "update"]
            np.testing.assert_allclose(sums, 1, atol=1e-6)
    plain, weights = (written["runs"][system][0]["parameters"] for system in ("plain", "weighted"))
    assert weights == plain + 2 * (2 * 2 - 2 * 16)
    text = (folder / "weighted_transformer.txt").read_text("utf-8")
    assert "resolved" in text and "28.4" in text and "newstest2014" in text
    for name in ("weighted_loss", "weighted_kappa", "weighted_alpha"):
        assert (folder / f"{name}.png").stat().st_size > 5000
        assert b"</svg>" in (folder / f"{name}.svg").read_bytes()

    def measured(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(weighted_transformer, "trained_and_tested", measured)
    assert start() == report
    with pytest.raises(ValueError, match="other settings .steps: 14 there, 101 asked for"):
        start("--updates", "101")


def test_heads_that_add_the_same_or_nothing_in_common():
    model = WeightedTransformer(
        11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, dropout=0.0, seed=3
    )
    ids = (
        np.random.default_rng(1).integers(3, 11, (3, 5)),
        np.random.default_rng(2).integers(3, 11, (3, 4)),
    )
    assert 0 < head_correlation(model, *ids) < 0.99
    layer = model.decoder_blocks[0].cross_attention
    for part in (layer.query_dense, layer.key_dense, layer.value_dense):
        kernel = numpy(part.kernel)  # (D, N, K)
        part.kernel.assign(np.repeat(kernel[:, :1], 2, axis=1))
    kernel = numpy(layer.output_dense.kernel)  # (N, V, D)
    layer.output_dense.kernel.assign(np.stack([kernel[0], -3 * kernel[0]]))
    np.testing.assert_allclose(head_correlation(model, *ids), 1, atol=1e-5)
    apart = np.arange(8) < 5
    layer.output_dense.kernel.assign(np.stack([kernel[0] * apart, kernel[0] * ~apart]))
    np.testing.assert_allclose(head_correlation(model, *ids), 0, atol=1e-6)


def test_the_ablation_from_end_to_end(tmp_path, monkeypatch, of_seconds):
    monkeypatch.setattr(BranchLog.__init__, "__defaults__", (7, None))
    chosen = ("plain", "learned", "kappa", "free", "softmax")
    monkeypatch.setattr(
        weighted_ablation, "SYSTEMS", {s: weighted_ablation.SYSTEMS[s] for s in chosen}
    )

    def kappa(translator, *_):  # in place of BLEU, of which the other script's test makes sure
        found = [w for w in translator.model.weights if w.path.endswith("kappa")]
        return float(numpy(found[0])[0]) if found else 0.0

    monkeypatch.setattr(weighted_ablation, "bleu", kappa)
    folder = tmp_path / "out"
    options = weighted_ablation.parser().parse_args(["--test-sentences", "3", "--seeds", "1"])
    runs = weighted_ablation.main(options, folder)["runs"]
    logs = {
        system: MetricsLog(folder / "runs" / f"{system}-1" / "branches.jsonl").read()
        for system in weighted_ablation.SYSTEMS
    }
    assert [sorted(entry) for entry in logs.pop("plain")] == [["correlation", "time", "update"]] * 3
    ends = {}
    for system, entries in logs.items():
        assert [entry["update"] for entry in entries] == [0, 7, 14]
        first, last = (
            {name: values for name, values in entry.items() if isinstance(values, list)}
            for entry in (entries[0], entries[-1])
        )
        moved = {name.rpartition("/")[2] for name in first if first[name] != last[name]}
        ends[system] = moved, last
    assert ends["learned"][0] == ends["softmax"][0] == {"kappa", "alpha"}
    assert ends["kappa"][0] == {"kappa"} and ends["free"][0] == {"kappa", "alpha"}
    for system, is_kept in {"learned": True, "kappa": True, "free": False}.items():
        sums = [sum(values) for values in ends[system][1].values()]
        assert np.allclose(sums, 1, atol=1e-6) == is_kept, system
    equal = [values for name, values in ends["kappa"][1].items() if name.endswith("alpha")]
    np.testing.assert_allclose(equal, 0.5)
    for own in runs.values():
        assert [update for update, _ in own[0]["correlations"]] == [0, 7, 14]
        assert 0 < own[0]["correlation"] < 1
    replaced = runs["learned"][0]["replaced"]
    assert replaced["uniform"] == 0.5 and replaced["random"] not in (
        0.5,
        runs["learned"][0]["bleu"],
    )
    text = (folder / "weighted_ablation.txt").read_text("utf-8")
    assert "23.4" in text and "resolved" in text and "learned by a softmax" in text
