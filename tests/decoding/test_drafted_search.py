"""Drafts: whatever is proposed, by whichever engine, the output is that of greedy search."""

import dataclasses
import importlib

import keras
import numpy as np
import pytest

from keras_attention.decoding import LexicalDraft, Sampling
from keras_attention.decoding.drafted_search import Drafting, drafted_search
from keras_attention.decoding.ensemble import Ensemble
from keras_attention.decoding.hypotheses import SearchRules, penalty
from keras_attention.decoding.model_search import ModelSearch
from keras_attention.engine.base import Verifier
from keras_attention.engine.select import EngineSelector
from keras_attention.ops.compile import compile_for_inference
from keras_attention.spec import SpecError
from tests.engine.test_engines import OPTIONS, V, model_with
from tests.helpers import numpy

BACKEND = keras.backend.backend()
ENGINES = [BACKEND, *(["numpy", "numba"] if BACKEND == "torch" else [])]
START, END, PAD, LIMIT, ALPHA = 0, 1, 0, 14, 0.6
RULES = SearchRules(1, START, END, PAD, ALPHA)
SOURCES = [[5, 6, 7, 8, 9, 12, END], [10, 11, END]]


class Proposing:
    """Proposes the right tokens with some probability, else any; sometimes fewer, or none."""

    def __init__(self, outputs, share, fewer=False, seed=11):
        self.outputs, self.share, self.fewer = outputs, share, fewer
        self.random = np.random.default_rng(seed)

    def propose(self, source_ids, output_ids, n, hidden):
        right = self.outputs[tuple(source_ids)][len(output_ids) :]
        number = self.random.integers(0, n + 1) if self.fewer else n
        is_right = self.random.random(number) < self.share
        wrong = self.random.integers(0, V, number)
        return [
            int(right[i] if is_right[i] and i < len(right) else wrong[i]) for i in range(number)
        ]


def greedy(model, sources):
    """The likeliest tokens of the training forward, one after the other, and their score, by source."""
    rows, longest = len(sources), max(map(len, sources))
    source = np.array([[*ids, *[PAD] * (longest - len(ids))] for ids in sources], "int32")
    # Of one shape, compiled once: no place sees what stands behind it.
    target = np.full((rows, LIMIT + 1), START, "int32")
    forward = compile_for_inference(
        lambda ids: model({"encoder_token_ids": source, "decoder_token_ids": ids}), model
    )
    found = np.zeros((rows, LIMIT))
    for place in range(LIMIT):
        logits = numpy(forward(target))[:, place].astype("float64")
        target[:, place + 1] = logits.argmax(axis=-1)
        logits -= logits.max(axis=-1, keepdims=True)
        found[:, place] = -np.log(np.exp(logits).sum(axis=-1))
    outputs = {}
    for ids, tokens, scores in zip(sources, target[:, 1:].tolist(), found, strict=True):
        length = tokens.index(END) + 1 if END in tokens else LIMIT
        factor = penalty(np.float32(length), ALPHA, np) if END in tokens else 1.0
        outputs[tuple(ids)] = tokens[:length], scores[:length].sum() / factor
    return outputs


def model_for(engine, options):
    """A model that an engine runs."""
    pytest.importorskip(engine)
    if engine == "numpy" and options.get("activation") == "gelu":
        options = {**options, "activation": "relu"}
    return model_with(**options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [*OPTIONS[:2], {"num_layers": 2, "attention_window": 3}])
def test_every_draft_gives_the_greedy_output(engine, options):
    model = model_for(engine, options)
    expected = greedy(model, SOURCES)
    outputs = {source: output for source, (output, _) in expected.items()}
    runner = EngineSelector(model.spec(), "float32", engine, frozenset({"draft"})).engine()
    for share, fewer in ((0.0, False), (0.6, True), (1.0, False)):
        drafting = Drafting(Proposing(outputs, share, fewer), 3)
        for source in SOURCES:
            verifier = runner.verifier(np.array([source], "int32"), LIMIT)
            found = drafted_search(verifier, source, LIMIT, RULES, drafting, "float32", V)
            output, score = expected[tuple(source)]
            assert found.sequences[0, 0, : found.lengths[0, 0]].tolist() == output
            assert found.finished[0, 0] == (output[-1] == END)
            np.testing.assert_allclose(found.scores[0, 0], score, rtol=2e-5)
        report, tokens = drafting.report, sum(map(len, outputs.values()))
        assert report.tokens == tokens and report.accepted <= report.proposed
        assert report.steps < tokens or not share
        assert report.tokens_per_step == tokens / report.steps


class InPython:
    """A draft whose tables no engine is shown."""

    def __init__(self, draft):
        self.propose = draft.propose


@pytest.fixture(scope="module")
def drafted(greedy_demo):
    """Texts, a translator of them by Numba, its translations, and a draft."""
    pytest.importorskip("numba")
    texts = ["A small house.", "The old man sees the red car.", "Two dogs sleep in the big garden."]
    texts += ["", "We see that the children read the books of the old teacher."]
    texts += ["My brother laughs."]
    greedy = dataclasses.replace(greedy_demo, engine="numba")
    found = greedy.translate(texts)
    targets = [best[0].text for best in found]
    # Half of the text is another sentence's, so that some proposals are wrong.
    pairs = zip(texts * 2, [*targets[3:], *targets[:3], *targets], strict=True)
    return texts, greedy, found, LexicalDraft.train(greedy_demo.tokenizer, pairs)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(("lookahead", "threads"), [(1, 1), (3, 2), (5, 1), (5, 2)])
def test_compiled_proposals_are_those_of_python(drafted, monkeypatch, lookahead, threads):
    texts, greedy, expected, draft = drafted
    engine, verifier, packing = (
        importlib.import_module(f"keras_attention.engine.numba.{name}")
        for name in ("engine", "verifier", "packing")
    )
    monkeypatch.setattr(engine.NumbaEngine, "thread_groups", lambda *_: (1, threads))
    found, reports = {}, {}
    for name, share in (("python", 0.0), ("all", 0.0), ("likely", 0.5)):
        monkeypatch.setattr(verifier, "LEAST_SHARE", share)
        own = InPython(draft) if name == "python" else draft
        drafting = dataclasses.replace(greedy, draft=own, lookahead=lookahead)
        found[name] = [drafting.translate([text]) for text in texts]
        reports[name] = dataclasses.asdict(drafting.draft_report)
        for one, other in zip(found[name], expected, strict=True):
            assert one[0][0].token_ids == other[0].token_ids
            np.testing.assert_allclose(one[0][0].score, other[0].score, rtol=1e-5)
    assert found["all"] == found["python"] and reports["all"] == reports["python"]
    assert 0 < reports["all"]["accepted"] < reports["all"]["proposed"]
    assert reports["all"]["steps"] < reports["all"]["tokens"] == reports["likely"]["tokens"]
    tile = max(2, packing.Packing("float32").layout.small_tile)
    if lookahead >= tile:  # Rows of a tile take as long as one.
        assert reports["likely"]["proposed"] < reports["all"]["proposed"]


class Table(Verifier):
    """What follows each token; several rows are rounded so that near ties turn around."""

    def __init__(self, seed, margin):
        random = np.random.default_rng(seed)
        self.best = random.integers(2, V, V)
        self.second = (self.best + random.integers(1, V, V)) % V
        self.is_close = random.random(V) < 0.5
        self.margin, self.passes, self.fed = margin, [], []

    def verify(self, token_ids, index):
        assert index <= len(self.fed) and index + len(token_ids) <= LIMIT
        self.fed[index:] = token_ids.tolist()
        self.passes.append(len(token_ids))
        ids = np.stack([self.best, self.second], axis=1)[token_ids]
        close = self.is_close[token_ids]
        if len(token_ids) > 1:
            ids[close] = ids[close, ::-1]
        scores = np.array([[-0.5, -0.9]] * len(token_ids), "float32")
        scores[close, 1] = -0.5 - self.margin
        width = min(2, len(token_ids))
        # Of each token the state is the token that the model chooses behind it.
        return scores[:, :width], ids[:, :width], self.best[token_ids, None]

    def greedy(self):
        output = [START]
        while len(output) <= LIMIT:
            output.append(int(self.best[output[-1]]))
        return output[1:]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("seed", range(5))
def test_a_single_row_decides_near_ties(seed):
    table = Table(seed, margin=5e-5)
    draft = Drafting(Proposing({(7,): table.greedy()}, 0.8), 4)
    found = drafted_search(table, [7], LIMIT, RULES, draft, "float32", V)
    assert found.sequences[0, 0].tolist() == table.greedy()
    np.testing.assert_allclose(found.scores, -0.5 * LIMIT)
    assert set(table.passes) == {1, 5} and draft.report.steps == len(table.passes)
    # Where the margin is wide enough, several rows are believed, here wrongly.
    wide = Table(seed, margin=2e-4)
    draft = Drafting(Proposing({(7,): wide.greedy()}, 0.8), 4)
    found = drafted_search(wide, [7], LIMIT, RULES, draft, "float32", V)
    assert found.sequences[0, 0].tolist() != wide.greedy()


@pytest.mark.backends("torch")
def test_a_draft_is_given_the_state_of_the_last_token():
    table, seen = Table(7, margin=1.0), []

    class Watching(Proposing):
        def propose(self, source_ids, output_ids, n, hidden):
            seen.append((list(output_ids), None if hidden is None else int(hidden[0])))
            return super().propose(source_ids, output_ids, n, hidden)

    draft = Drafting(Watching({(7,): table.greedy()}, 0.6, fewer=True), 3)
    drafted_search(table, [7], LIMIT, RULES, draft, "float32", V)
    assert seen[0] == ([], None) and len(seen) > 4
    assert all(state == output[-1] for output, state in seen[1:])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", OPTIONS[:2])
def test_logits_are_made_of_the_states(engine, options):
    model = model_for(engine, options)
    spec = model.spec()
    runner = EngineSelector(spec, "float32", engine, frozenset({"draft"})).engine()
    verifier = runner.verifier(np.array(SOURCES[:1], "int32"), LIMIT)
    verifier.verify(np.array([START], "int32"), 0)
    fed = np.array([7, 4, 9], "int32")
    scores, ids, hidden = verifier.verify(fed, 1)
    assert hidden.shape == (3, 12) and hidden.dtype == np.float32
    table = spec.output_embedding
    kernel = table.reverse_embeddings
    kernel = numpy(table.embeddings).T if kernel is None else numpy(kernel)
    logits = hidden @ kernel + (0.0 if table.logits_bias is None else numpy(table.logits_bias))
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(np.take_along_axis(logits, ids, 1), scores, atol=2e-4)


class Wrong:
    def __init__(self, *ids):
        self.ids = ids

    def propose(self, source_ids, output_ids, n, hidden):
        return list(self.ids)


@pytest.mark.backends("torch")
def test_a_translator_drafts_single_sentences_only(greedy_demo):
    texts = ["A small house.", "The old man sees the red car.", ""]
    pairs = list(zip(texts, greedy_demo(texts), strict=True))
    draft = LexicalDraft.train(greedy_demo.tokenizer, pairs)
    drafting = dataclasses.replace(greedy_demo, draft=draft)
    assert [drafting(text) for text in texts] == greedy_demo(texts)
    report = dataclasses.asdict(drafting.draft_report)
    assert report["undrafted"] == 0 < report["accepted"] < report["proposed"]
    assert drafting(texts) == greedy_demo(texts)  # in one batch
    assert dataclasses.asdict(drafting.draft_report) == {**report, "undrafted": 2}
    assert greedy_demo.draft_report.steps == 0


@pytest.mark.backends("torch")
@pytest.mark.parametrize("ids", [(3, -1), (10**6,), (3, 4, 5, 6)])
def test_ids_outside_the_vocabulary_are_refused(greedy_demo, ids):
    wrong = dataclasses.replace(greedy_demo, draft=Wrong(*ids))
    with pytest.raises(ValueError, match="`draft` must propose at most 3 ids"):
        wrong("A small house.")


@pytest.mark.backends("torch")
def test_what_no_draft_speeds_up_is_refused(greedy_demo):
    draft = Wrong(3)
    with pytest.raises(ValueError, match="`draft` needs `beam_size=1`.*beam_size=4"):
        dataclasses.replace(greedy_demo, draft=draft, beam_size=4)
    with pytest.raises(ValueError, match="without `sampling`"):
        dataclasses.replace(greedy_demo, draft=draft, sampling=Sampling())
    with pytest.raises(ValueError, match="`draft` must be a draft"):
        dataclasses.replace(greedy_demo, draft="lexical")
    with pytest.raises(ValueError, match="`lookahead`"):
        dataclasses.replace(greedy_demo, draft=draft, lookahead=17)
    with pytest.raises((ValueError, SpecError), match="engine"):
        dataclasses.replace(greedy_demo, draft=draft, engine="plain")
    with pytest.raises(ValueError, match="ensembles, ONNX models and the plain search do not"):
        models = [model_with(seed=seed) for seed in (1, 2)]
        ModelSearch(Ensemble(models), 1, 0.6, 5, drafting=Drafting(draft, 2))
    cells = model_with(decoder_cell="ssru")
    with pytest.raises(SpecError, match="decoder block 1 has an SSRU. Leave `draft` out"):
        EngineSelector(cells.spec(), "float32", BACKEND, frozenset({"draft"}))
