"""Engines against the training forward, beams with histories that cross in one buffer."""

import importlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention import Transformer
from keras_attention.engine import select
from keras_attention.engine.select import EngineSelector
from keras_attention.ops.compile import compile_for_inference
from keras_attention.spec import SpecError
from tests.helpers import numpy

BACKEND = keras.backend.backend()
V, B, K = 13, 2, 3
SOURCE = np.array([[5, 6, 7, 8, 9, 12, 1], [10, 11, 1, 0, 0, 0, 0]], "int32")
OPTIONS = [
    {},
    {
        "num_layers": 2,
        "key_dim": 5,
        "value_dim": 6,
        "normalize_first": True,
        "use_attention_bias": True,
        "activation": "gelu",
        "position_layout": "learned",
        "max_length": 21,
        "tie_weights": False,
    },
    # As wide as the paper's heads.
    {"num_heads": 2, "key_dim": 64, "value_dim": 64},
]


def model_with(seed=3, **options):
    """Every weight matters: gains and biases are not ones and zeros."""
    model = Transformer(
        **{"num_layers": 1, "num_heads": 3, **options},
        vocabulary_size=V,
        hidden_dim=12,
        intermediate_dim=20,
    )
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


def selector_of(model, precision="float32", engine=BACKEND):
    """The only engine that may run, whatever this CPU and the batch would choose."""
    if engine == "numba":
        pytest.importorskip("numba")
    return EngineSelector(model.spec(), precision, engine)


def crossing_histories(steps, seed=5):
    """Tokens fed to B x K beams at each step, and the beams that they continue."""
    random = np.random.default_rng(seed)
    tokens = random.integers(2, V, (steps, B, K)).astype("int32")
    tokens[0] = 0
    return tokens, random.integers(0, K, (steps, B, K))


def decoded(selector, tokens, parents, length, room=4):
    """All log-probabilities (B, K, V) after the last step, and the histories (B, K, steps).

    Every `room` steps the buffer is full, and what no beam has in its history goes.
    """
    search = selector.engine().start(SOURCE, K, length)
    is_fixed = search.engine.fixed_shapes
    bias = np.full((B, K, length * K if is_fixed else 0), search.masked, "float32")
    histories = np.zeros((B, K, 0), "int32")
    line, slots = np.arange(B)[:, None], np.arange(K)
    used = dropped = 0
    for index, (fed, chosen) in enumerate(zip(tokens, parents, strict=True)):
        bias, histories = bias[line, chosen], histories[line, chosen]
        if used == bias.shape[2]:
            is_seen = (bias == 0.0).any(axis=1)
            number = -(-max(is_seen.sum(axis=1)) // K) * K if used else 0
            # Those not seen first, so that nothing stays where it was.
            places = np.argsort(is_seen, axis=1, kind="stable")[:, used - number :]
            search.compact(places.astype("int32"), room * K)
            bias = np.take_along_axis(bias, places[:, None], axis=2)
            bias = np.pad(bias, ((0, 0), (0, 0), (0, room * K)), constant_values=search.masked)
            used, dropped = number, dropped + used - number
        bias[:, slots, used + slots] = 0.0
        histories = np.concatenate([histories, fed[:, :, None]], axis=2)
        scores, ids = search.step(fed, index, used, bias, V + 1)
        used += K
        assert scores.shape == ids.shape == (B, K, V)
    assert len(tokens) <= room or is_fixed or dropped
    assert np.all(scores[..., :-1] >= scores[..., 1:]), "best first"
    table = np.empty((B, K, V), "float32")
    np.put_along_axis(table, ids, scores, axis=-1)
    return table, histories


def expected(model, histories):
    """The same by the training forward, each beam by itself."""
    inputs = {
        "encoder_token_ids": np.repeat(SOURCE, K, axis=0),
        "decoder_token_ids": histories.reshape(B * K, -1),
    }
    logits = compile_for_inference(model, model)(inputs)  # JAX would compile each operation else
    last = numpy(logits)[:, -1].astype("float64").reshape(B, K, V)
    return last - np.log(np.exp(last).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    "options, engine",
    [
        *((options, BACKEND) for options in OPTIONS),
        ({**OPTIONS[1], "activation": "silu"}, "numpy"),
        (OPTIONS[2], "numpy"),
    ],
)
def test_steps_equal_the_training_forward(options, engine):
    """Over 19 steps, in which the buffer is full several times."""
    model = model_with(**options)
    selector = selector_of(model, engine=engine)
    tokens, parents = crossing_histories(19)
    got, histories = decoded(selector, tokens, parents, length=20)
    wanted = expected(model, histories)
    assert np.abs(wanted[:, 0] - wanted[:, 1]).max() > 0.1, "histories matter"
    np.testing.assert_allclose(got, wanted, atol=2e-4)


@pytest.mark.parametrize("num_heads", [3, 1])
def test_bfloat16_is_near(num_heads):
    """Of a float32 model, and the same as of one with that policy."""
    model = model_with(num_heads=num_heads)
    mixed = model_with(dtype="mixed_bfloat16", num_heads=num_heads)
    mixed.set_weights(model.get_weights())
    tokens, parents = crossing_histories(3)
    tables = []
    for owner in (model, mixed):
        selector = selector_of(owner, "bfloat16")
        table, histories = decoded(selector, tokens, parents, length=3)
        tables.append(table)
    np.testing.assert_array_equal(*tables)
    wanted = expected(model, histories)
    assert 0.0 < np.abs(tables[0] - wanted).max() < 0.15 * np.abs(wanted).max()


@pytest.mark.backends("torch")
def test_weights_written_through_data_are_read():
    model = model_with()
    selector = selector_of(model)
    tokens, parents = crossing_histories(2)
    before, _ = decoded(selector, tokens, parents, length=2)
    for weight in model.trainable_weights:
        weight.value.data.mul_(1.25)
    got, histories = decoded(selector, tokens, parents, length=2)
    np.testing.assert_allclose(got, expected(model, histories), atol=4e-4)
    assert np.abs(got - before).max() > 0.05


def test_one_number_that_changes_is_seen(monkeypatch):
    """Not only what an update of the whole model changes; and the weights are read once."""
    model = model_with()
    selector = selector_of(model)
    tokens, parents = crossing_histories(2)
    before, histories = decoded(selector, tokens, parents, length=2)
    readings = []
    chosen = selector.engine()
    monkeypatch.setattr(type(chosen), "read_weights", lambda self: readings.append(self))
    decoded(selector, tokens, parents, length=2)
    assert not readings, "nothing has changed"
    monkeypatch.undo()
    bias = model.decoder_blocks[0].feed_forward.outer.bias
    bias.assign(numpy(bias) + 40.0 * np.eye(12)[5])
    got, _ = decoded(selector, tokens, parents, length=2)
    np.testing.assert_allclose(got, expected(model, histories), atol=1e-3)
    assert np.abs(got - before).max() > 0.05


def test_int8_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(select, "is_installed", lambda package: False)
    with pytest.raises(SpecError, match=f"needs Numba.* engine='{BACKEND}' computes in .*'int8'"):
        EngineSelector(model_with().spec(), "int8")


@pytest.mark.parametrize(
    "precision, is_on_cpu, name",
    [
        ("float32", True, "numba"),
        ("float32", False, BACKEND),
        ("float16", True, BACKEND),
        ("int8", True, "numba"),
    ],
)
def test_who_decodes(precision, is_on_cpu, name, monkeypatch):
    """Numba on a CPU, whatever the processor and the batch: no clock and no size decides."""
    pytest.importorskip("numba")
    module = importlib.import_module(select.ABILITIES[BACKEND].module)
    monkeypatch.setattr(module, "is_on_cpu", lambda spec: is_on_cpu)
    selector = EngineSelector(model_with().spec(), precision)
    assert selector.choice.name == selector.engine().name == name
    reason = selector.choice_for(12).reason
    assert reason.endswith("the next token of 12 candidate translations, with 0.0 million weights.")
    assert "the next token of 1 candidate translation, with" in selector.choice_for(1).reason


def test_without_numba_the_backend_decodes_or_numpy(monkeypatch):
    monkeypatch.setattr(select, "is_installed", lambda package: False)
    spec = model_with().spec()
    assert EngineSelector(spec, "float32").choice.name == BACKEND
    fixed = spec.map_weights(numpy)
    assert EngineSelector(fixed, "float32").choice.name == "numpy"
    with pytest.raises(SpecError, match="engine='numpy' computes in float32"):
        EngineSelector(fixed, "int8")


@pytest.mark.backends("tensorflow")
def test_numpy_translates_little_until_numba_is_compiled(monkeypatch):
    """Little in all, not in each call; a search that an earlier process has compiled is used at once."""
    engine = pytest.importorskip("keras_attention.engine.numba.engine")
    on_disk = []
    monkeypatch.setattr(engine, "is_on_disk", lambda *given: bool(on_disk))
    spec = model_with().spec()
    # 13 rows of the table of 12, and two attentions and a network of 12 x 12 and 12 x 20.
    weights = 13 * 12 + 8 * 12 * 12 + 2 * 12 * 20 + 20 + 12 + 6 * 12
    monkeypatch.setattr(select, "FEW_MULTIPLICATIONS", 7 * weights)
    waiting = EngineSelector(spec, "float32")
    assert [waiting.engine(rows).name for rows in (3, 4)] == ["numpy", "numpy"]
    assert waiting.engine(1).name == "numba"
    for more in (
        {"engine": "numba"},
        {"precision": "bfloat16"},
        {"needs": frozenset({"sampling"})},
    ):
        assert EngineSelector(spec, **{"precision": "float32", **more}).engine(1).name == "numba"
    assert EngineSelector(spec, "float32").engine().name == "numba", "nobody said that it is little"
    on_disk.append(True)
    assert EngineSelector(spec, "float32").engine(1).name == "numba"


def test_of_threads_that_begin_at_once_one_reads_the_weights(monkeypatch):
    selector, reads, start = selector_of(model_with()), [], threading.Barrier(3)
    kind = select._module(BACKEND).ENGINE

    def slowly(engine):
        reads.append(engine)
        time.sleep(0.3)

    def begin(_):
        start.wait()
        return selector.engine()

    monkeypatch.setattr(kind, "read_weights", slowly)
    with ThreadPoolExecutor(3) as threads:
        engines = list(threads.map(begin, range(3)))
    assert len(reads) == 1 and all(engine is reads[0] for engine in engines)
