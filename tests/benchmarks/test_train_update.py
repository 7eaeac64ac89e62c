import json
import math

import numpy as np
import pytest
import train_update
from harness import Spec
from harness.gemm import Gemm
from peers.training.batches import (
    BatchMaker,
    random_batch,
    read_batches,
    tokens,
    training_flop,
    write_batches,
)
from peers.training.programs import KerasAttention, KerasHub, Marian, our_name
from peers.weights import Sizes, make_weights, take, weight_shapes

from keras_attention import training_flops
from tests.oracle import smoothed_nll, transformer

SIZES = Sizes(19, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2)
PADDED = (
    np.array([[5, 7, 1], [9, 1, 0]], "int32"),
    np.array([[0, 3, 11, 4], [0, 6, 0, 0]], "int32"),
    np.array([[3, 11, 4, 1], [6, 1, 0, 0]], "int32"),
)


# One shape: a compiler compiles once.
OTHER = tuple(np.where(ids > 2, ids + 1, ids) for ids in PADDED)


@pytest.fixture
def batches(tmp_path):
    path = tmp_path / "batches.npz"
    write_batches(path, [PADDED, OTHER], {"data": "a few"})
    return str(path)


def expected_loss(batch):
    """The oracle's loss of the common weights."""
    weights = make_weights(SIZES)
    heads = (SIZES.num_heads, SIZES.hidden_dim // SIZES.num_heads)

    def get(path):
        value = weights[path].astype("float64")
        if "attention_output/kernel" in path:
            return value.reshape(*heads, SIZES.hidden_dim)
        return value.reshape(SIZES.hidden_dim, *heads) if "attention/" in path else value

    source, decoder, labels = batch
    logits = transformer(source, decoder, get, SIZES.num_layers)
    real = [tuple(index) for index in np.argwhere(labels != 0)]
    return np.mean([smoothed_nll(logits[index], labels[index], 0.1) for index in real])


def options_of(batches, **more):
    return {"sizes": SIZES.as_options(), "batches": batches, "learning_rate": 0.01, **more}


def test_our_subject_starts_at_the_oracles_loss_and_trains(batches):
    subject = KerasAttention(**options_of(batches))
    facts = subject.prepare()
    assert facts["parameters"] == sum(math.prod(shape) for _, shape in weight_shapes(SIZES))
    assert facts["work"]["tokens"] == 5 + 6 and facts["work"]["updates"] == 1
    before = subject.check()["loss"]
    np.testing.assert_allclose(before, expected_loss(PADDED), rtol=1e-5)
    seconds = subject.run(3)
    assert len(seconds) == 3 and min(seconds) > 0
    assert int(subject.model.optimizer.iterations) == 3
    assert subject.check()["loss"] < before
    subject.unit = "epoch"
    assert len(subject.run(2)) == 2
    assert int(subject.model.optimizer.iterations) == 3 + 2 * 2


@pytest.mark.backends("torch")
def test_marian_starts_at_the_oracles_loss_and_trains(batches):
    pytest.importorskip("transformers")
    subject = Marian(**options_of(batches, unit="epoch"))
    assert subject.prepare()["work"]["tokens"] == 2 * (5 + 6)
    before = subject.check()["loss"]
    np.testing.assert_allclose(before, expected_loss(PADDED), rtol=1e-5)
    assert len(subject.run(2)) == 2
    subject.unit = "update"
    assert len(subject.run(3)) == 3
    assert subject.check()["loss"] < before


@pytest.mark.backends(
    "tensorflow"
)  # Not of TensorFlow alone: once is enough, and KerasHub's layers import it.
def test_kerashub_starts_at_the_oracles_loss(batches):
    pytest.importorskip("keras_hub")
    subject = KerasHub(**options_of(batches, jit_compile=False))
    facts = subject.prepare()
    assert "biases" in facts["differs"] and facts["jit_compile"] is False
    np.testing.assert_allclose(subject.check()["loss"], expected_loss(PADDED), rtol=1e-5)


@pytest.mark.backends("torch")
def test_weights_that_do_not_fit_are_refused():
    weights = make_weights(SIZES)
    assert our_name("decoder_block_1/cross_attention/query/kernel") in weights
    with pytest.raises(ValueError, match="not there"):
        take(weights, "encoder_block_9/feed_forward/inner/bias", (12,))
    with pytest.raises(ValueError, match=r"\(12,\)"):
        take(weights, "encoder_block_1/feed_forward/inner/bias", (13,))


@pytest.mark.backends("torch")
def test_counted_work_is_that_of_the_package():
    shapes = [(2, 3, 4), (3, 5, 5)]
    batches = [PADDED, random_batch(3, 5, 19, seed=2)]
    assert training_flop(SIZES.as_options(), batches) == training_flops(SIZES.as_options(), shapes)
    assert tokens(batches) == (5 + 6) + 2 * 3 * 5


def test_the_ceiling_counts_its_flops():
    ceiling = Gemm(size=64)
    assert ceiling.prepare()["work"]["flop"] == ceiling.products * 2 * 64**3
    assert ceiling.products > 1 and len(ceiling.run(2)) == 2


@pytest.mark.backends("torch")
def test_random_sentences_make_token_batches(tmp_path):
    path = tmp_path / "made.npz"
    maker = BatchMaker(str(path), 50, 40, batch_tokens=120, max_shapes=3, length_multiple=4)
    facts = maker.prepare()
    batches, written = read_batches(path)
    assert written == facts and facts["pairs"] == 40 and facts["vocabulary_size"] == 50
    assert sum((labels == 1).sum() for _, _, labels in batches) == 40
    for source, decoder, labels in batches:
        assert source.shape[1] % 4 == 0 and max(source.size, labels.size) <= 120
        assert (decoder[:, 0] == 0).all() and (decoder[:, 1:] != 1).all()


@pytest.mark.backends("torch")
def test_the_command_reports_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(__import__("pathlib").Path(__file__).parent))

    def two(options, workload, path):
        assert workload.sizes.vocabulary_size == 40 and read_batches(path)[0][0][0].shape == (2, 3)
        ours = {"seconds": 0.5, "loss": 2.0}
        return [
            Spec("keras_attention, X", "dummies:Dummy", ours),
            Spec("HF Marian", "dummies:Dummy", {**ours, "seconds": 1.0}),
            # Another model: there is no loss to compare.
            Spec("weighted, X", "dummies:Dummy", {"seconds": 0.75, "loss": None}),
        ]

    monkeypatch.setattr(train_update, "subjects", two)
    monkeypatch.setattr(train_update, "is_ours", lambda o: o.spec.name.startswith("keras_att"))
    command = (
        "--vocabulary-size 40 --pairs 2 --length 3 --rounds 2 --count 1 --ceiling-size 0 --record"
    )
    assert train_update.main([*command.split(), str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "| HF Marian | 1,000 | 1,000-1,000 | 100 |" in text and "| 2.00 (2.00-2.00) |" in text
    assert "| weighted, X | 750 | 750-750 |" in text and "HF Marian: loss 2.0000" in text
    record = json.loads(next(tmp_path.glob("*train_update-base-float32-2-3-40-*")).read_text())
    assert record["workload"]["sizes"]["vocabulary_size"] == 40
    assert record["subjects"][1]["rounds"] == [[1.0], [1.0]]


@pytest.mark.backends("torch")
def test_the_command_line():
    options = train_update.parse(
        ["--against", "hf, kerashub", "--workload", "small", "--rounds", "7"]
    )
    assert options.against == ("hf", "kerashub")
    workload = train_update.chosen_workload(options)
    assert (workload.rounds, workload.unit, workload.sizes.hidden_dim) == (7, "epoch", 256)
    assert train_update.parse(["--against", "none"]).against == ()
    with pytest.raises(SystemExit):
        train_update.parse(["--against", "nobody"])
