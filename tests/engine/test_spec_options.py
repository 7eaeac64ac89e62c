"""Every option of a spec on every engine, against a search in Python over a forward in NumPy."""

import dataclasses
import functools
import inspect
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.decoding.hypotheses import SearchRules, result, search_options
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.decoding.onnx_export import write_onnx
from keras_attention.decoding.requests import Batching, Request
from keras_attention.engine import numpy as numpy_engine
from keras_attention.engine.base import SearchingEngine
from keras_attention.engine.onnx import OnnxSelector
from keras_attention.engine.operations import Operations
from keras_attention.engine.select import EngineSelector, refusal
from keras_attention.interop.onnx_model import OnnxModel
from keras_attention.spec import SpecError
from tests.decoding.oracle_search import greedy, slow_beam_search
from tests.engine.random_spec import OPTIONS, TARGET_V, V, covering_set, random_spec
from tests.helpers import numpy
from tests.models.numpy_transformer import teacher_forced_logits
from tests.models.test_options import PAIRWISE, RICH, TEXTS, Numbers, model_of

BACKEND = keras.backend.backend()
NUMBA = BACKEND == "torch"  # It needs no backend: once is enough.
ENGINES = (BACKEND, *["numba"] * NUMBA)
ALPHA = 0.6
SETS = [frozenset(), *({option} for option in OPTIONS), *covering_set()[:5]]
# Each option alone greedily, and pairs of them in beams, whose rows change places.
CASES = [(frozenset(), 4), *((options, 1 if len(options) < 2 else 4) for options in SETS)]
# TensorFlow and JAX compile each search for seconds: there no option is alone; each is in three sets.
OF_BACKEND = [case for case in CASES if BACKEND == "torch" or len(case[0]) != 1]
# So long that the beams' buffer is full once, and sentences leave the batch one after the other.
LIMITS = (4, 19, 7)


def named(value):
    return str(value) if isinstance(value, int) else "+".join(sorted(value)) or "paper"


def sources(spec):
    """Sentences of different lengths; one holds the source's last token, which a target may lack."""
    last = spec.vocabulary_size - (2 if spec.pad_token_id == spec.vocabulary_size - 1 else 1)
    rows = [[5, 6, 7, last, 9, 12, 1], [10, 11, 1], [8, 3, 3, 14, 1]]
    return np.array([row + [spec.pad_token_id] * (7 - len(row)) for row in rows], "int32")


def searched(spec, engine, beam_size, precision="float32"):
    """The hypotheses of each sentence: [(score, tokens, is_finished)], best first."""
    if engine == BACKEND:
        spec = spec.map_weights(keras.ops.convert_to_tensor)
    return hypotheses(EngineSelector(spec, precision, engine).engine(), beam_size)


def hypotheses(engine, beam_size):
    spec, limits, longest = engine.spec, np.array(LIMITS), max(LIMITS)
    ids = (spec.start_token_id, spec.end_token_id, spec.pad_token_id)
    rules = SearchRules(beam_size, *ids, ALPHA)
    if isinstance(engine, SearchingEngine):
        options = search_options("n_best", beam_size, ALPHA, longest)
        found = result(engine.search(sources(spec), limits, options), limits, rules, np)
    else:
        state = engine.start(sources(spec), beam_size, longest)
        found = incremental_search(state, limits, rules, "n_best", longest)
    return [
        [
            (score, tuple(tokens[:length].tolist()), bool(is_finished))
            for tokens, score, length, is_finished in zip(*sentence, strict=True)
            if length
        ]
        for sentence in zip(*found, strict=True)
    ]


def log_probabilities(spec, source):
    """A function from what was decoded to the log-probabilities of the next token."""
    source = source[source != spec.pad_token_id][None]

    @functools.cache
    def after(prefix):
        target = np.array([[spec.start_token_id, *prefix]])
        row = teacher_forced_logits(spec, source, target)[0, -1]
        row[list(spec.suppressed_token_ids)] = -1e30
        row = row - row.max()
        return row - np.log(np.exp(row).sum())

    return after


@functools.cache
def expected(options, beam_size):
    return best_of(random_spec(options), beam_size)


def best_of(spec, beam_size):
    """The same by Python and NumPy."""
    found = []
    end, size = spec.end_token_id, spec.target_vocabulary_size
    for source, limit in zip(sources(spec), LIMITS, strict=True):
        after = log_probabilities(spec, source)
        if beam_size > 1:
            best = slow_beam_search(after, size, end, limit, ALPHA, beam_size, "n_best")[0]
            found.append([each for each in best if each[0] > -1e20])  # of no suppressed token
            continue
        total, tokens = greedy(after, end, limit)
        scale = ((5 + len(tokens)) / 6) ** ALPHA if tokens[-1] == end else 1.0
        found.append([(total / scale, tokens, tokens[-1] == end)])
    return found


def assert_equal(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        assert [each[1:] for each in one] == [each[1:] for each in other]
        scores = [[each[0] for each in found] for found in (one, other)]
        np.testing.assert_allclose(*scores, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("options", "beam_size"), OF_BACKEND, ids=named)
def test_the_backends_engine_finds_what_the_papers_say(options, beam_size):
    wanted = expected(frozenset(options), beam_size)
    assert_equal(searched(random_spec(options), BACKEND, beam_size), wanted)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ["numba", "numpy"])
@pytest.mark.parametrize(("options", "beam_size"), CASES, ids=named)
def test_engines_without_a_backend_find_what_the_papers_say(options, beam_size, engine):
    pytest.importorskip(engine)
    wanted = expected(frozenset(options), beam_size)
    assert_equal(searched(random_spec(options), engine, beam_size), wanted)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("most", [1, 200])
def test_numpys_attention_of_long_sources_is_computed_in_parts(monkeypatch, most):
    """Row by row, or a few; each beam sees other places of the history."""
    at_once, attend = [], Operations.attend

    def watched(self, query, key, *rest):
        at_once.append((query.shape[2], np.prod(query.shape[:3]) * key.shape[2]))
        return attend(self, query, key, *rest)

    monkeypatch.setattr(Operations, "attend", watched)
    monkeypatch.setattr(numpy_engine, "LARGEST_SCORES", most)
    options = next(each for each in SETS if "ssru" not in each)
    assert_equal(searched(random_spec(options), "numpy", 4), expected(frozenset(options), 4))
    assert all(rows == 1 or scores <= most for rows, scores in at_once)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("options", [each for each in SETS if "ssru" not in each], ids=named)
def test_ctranslate2_finds_what_the_papers_say(options):
    """Greedily, where its search has the same rules, but for the penalty of the length."""
    pytest.importorskip("ctranslate2")
    wanted = expected(frozenset(options), 1)
    for (got,), (best,) in zip(
        searched(random_spec(options), "ctranslate2", 1), wanted, strict=True
    ):
        assert got[1:] == best[1:]
        length = len(best[1])
        scale = ((5 + length) / 6 / length) ** ALPHA if best[2] else 1.0
        assert got[0] == pytest.approx(best[0] * scale, rel=2e-4, abs=2e-4)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(("options", "beam_size"), [CASES[0], *CASES[-3:]], ids=named)
def test_onnxruntime_finds_what_the_papers_say(options, beam_size, tmp_path):
    """`test_onnx_export` compares the logits of every option."""
    wanted = expected(frozenset(options), beam_size)
    assert_equal(hypotheses(onnx_engine(random_spec(options), tmp_path), beam_size), wanted)


def onnx_engine(spec, folder):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    write_onnx(spec, folder, max_length=max(LIMITS), beam_size=4)
    return OnnxSelector(OnnxModel(folder), None, "auto").engine()


@pytest.mark.backends("torch")
def test_ctranslate2_has_no_ssru():
    pytest.importorskip("ctranslate2")
    assert "has no SSRU" in refusal("ctranslate2", random_spec({"ssru"}), "float32")
    with pytest.raises(SpecError, match="has no SSRU"):
        EngineSelector(random_spec({"ssru"}), "float32", "ctranslate2")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_beam_that_is_wider_than_what_may_be_produced(engine):
    """Nothing that is suppressed fills it up."""
    others = tuple(token for token in range(V) if token not in (1, 5, 6))
    spec = dataclasses.replace(random_spec({"ssru"}), suppressed_token_ids=others)
    wanted = best_of(spec, 4)
    assert_equal(searched(spec, engine, 4), wanted)
    assert {token for found in wanted for each in found for token in each[1]} <= {1, 5, 6}


# What is in no row of all pairs.
ALSO = {
    "key_dim": 5,
    "value_dim": 7,
    "hidden_dim": 15,
    "num_heads": 1,
    "intermediate_dim": 9,
    "layer_norm_epsilon": 0.1,
    "max_length": 30,
    "position_layout": "learned",
    "activation": "gelu",
}
# On PyTorch rows that hold every value of each option; a compiler compiles each search.
OF_MODELS = [*PAIRWISE[:9], ALSO] if NUMBA else [RICH, {**RICH, "decoder_cell": "attention"}]


def test_every_option_is_searched():
    """But ids, which the tokenizer decides, what is of training alone, and what engines refuse."""
    others = {
        "vocabulary_size",
        "end_token_id",
        "dropout",
        "attention_dropout",
        "activation_dropout",
    }
    others |= {"recompute", "seed", "attention_window", "kwargs"}
    searched = {name for options in [*PAIRWISE, ALSO] for name in options}
    assert searched == {*inspect.signature(Transformer).parameters} - others


@pytest.mark.parametrize("options", OF_MODELS, ids=range(len(OF_MODELS)))
def test_a_models_engines_find_what_its_plain_search_finds(options):
    model = model_of(**options)
    for weight in model.trainable_weights if NUMBA else ():  # so large that hypotheses differ
        weight.assign(numpy(weight) * (5.0 if len(weight.shape) > 1 else 1.0))
    settings = {"beam_size": 3, "max_extra_length": 2, "show_progress": False}
    found = {
        engine: Translator(model, Numbers(model), engine=engine, **settings).translate(
            TEXTS, n_best=3, unique=False
        )
        for engine in ("plain", BACKEND, *["numba"] * NUMBA)
    }
    plain = [[each.token_ids for each in best] for best in found["plain"]]
    assert len({tuple(ids) for best in plain for ids in best}) > 2
    for name, others in found.items():
        assert [[each.token_ids for each in best] for best in others] == plain, name
        scores = [[[t.score for t in best] for best in each] for each in (others, found["plain"])]
        for one, other in zip(*scores, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4)


def log_probability(spec, row, tokens):
    after = log_probabilities(spec, sources(spec)[row])
    return sum(after(tokens[:i])[token] for i, token in enumerate(tokens))


@pytest.mark.parametrize(
    ("engine", "precision"),
    [(BACKEND, "bfloat16"), *(("numba", each) for each in ("bfloat16", "int8") if NUMBA)],
)
def test_precisions_are_near(engine, precision):
    """With all options at once; a token that is suppressed is in no precision there."""
    spec = random_spec(OPTIONS)
    for row, found in enumerate(searched(spec, engine, 4, precision)):
        assert len(found) == 4
        for score, tokens, is_finished in found:
            assert not set(tokens) & set(spec.suppressed_token_ids)
            scale = ((5 + len(tokens)) / 6) ** ALPHA if is_finished else 1.0
            wanted = log_probability(spec, row, tokens) / scale
            assert score == pytest.approx(wanted, rel=0.1, abs=0.2)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("groups, threads", [(1, 3), (2, 2)])
def test_numbas_threads_change_nothing_in_cells(groups, threads, monkeypatch):
    pytest.importorskip("numba")
    from keras_attention.engine.numba import engine

    spec = random_spec({"ssru", "target_vocabulary"})
    wanted = searched(spec, "numba", 4)
    sizes = (groups, threads)
    monkeypatch.setattr(engine.NumbaEngine, "thread_groups", lambda self, *given: sizes)
    with ThreadPoolExecutor(groups * threads - 1) as pool:
        monkeypatch.setattr("keras_attention.engine.numba.threads._pool", lambda process: pool)
        assert searched(spec, "numba", 4) == wanted


@pytest.mark.backends("torch")
def test_ids_are_those_of_the_source():
    """Numba reads rows unchecked: an id that only the target's size would refuse passes, others do not."""
    pytest.importorskip("numba")
    spec = random_spec({"target_vocabulary"})
    assert TARGET_V < sources(spec).max() == V - 1
    requests = [Request("", row[row != spec.pad_token_id].tolist(), 19) for row in sources(spec)]

    def search(model):
        batching = Batching(200, None, model.max_length, 1, 19)
        found = ModelSearch(model, batching, 0.0, engine="numba")(requests, shows_progress=False)
        return sorted(index for indices, _ in found for index in indices)

    assert search(spec) == [0, 1, 2]
    wrong = dataclasses.replace(
        spec,
        embedding=dataclasses.replace(spec.embedding, embeddings=spec.embedding.embeddings[:22]),
    )
    with pytest.raises(ValueError, match="less than 22, .*22"):
        search(wrong)


@pytest.mark.parametrize("engine", ENGINES)
def test_present_tables_and_biases_are_read(engine):
    """What an engine computes from the weights it computes again; the suppressed tokens stay so."""
    options = {"target_vocabulary", "logits_bias", "suppressed", "ssru"}
    before, after = random_spec(options), random_spec(options, seed=7)
    spec = before.map_weights(keras.Variable)
    selector = EngineSelector(spec, "float32", engine)
    wanted = [searched(present, engine, 4) for present in (before, after)]
    for present, found in zip((before, after), wanted, strict=True):
        for path, weight in present.weights().items():
            spec.weights()[path].assign(weight)
        assert_equal(hypotheses(selector.engine(), 4), found)
    assert wanted[0] != wanted[1]
