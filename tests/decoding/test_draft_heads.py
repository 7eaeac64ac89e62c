"""`DraftHeads`: proposals against loops, examples against the training forward, hostile heads and files."""

import copy
import dataclasses

import keras
import numpy as np
import pytest

from keras_attention import DraftHeads, LexicalDraft
from keras_attention.decoding.draft_heads import HeadWeights, _examples, _fitted, _projection
from keras_attention.decoding.drafts import load_draft
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.progress import Progress
from tests.engine.test_engines import V, model_with
from tests.helpers import numpy

pytestmark = pytest.mark.backends("torch")

D, F, H, C = 6, 5, 3, 4
SILENT = Progress(None, "training heads", enabled=False)
TEXTS = ["A small house.", "The old man sees the red car.", "The dog sleeps."]


def random_heads(depth=D, width=F, heads=H, count=C, size=90, seed=3):
    random = np.random.default_rng(seed)
    shapes = [(heads, depth, width), (heads, depth, width), (heads, width)]
    shapes += [(heads, width, depth), (heads, depth), (depth, count), (count,)]
    weights = [random.standard_normal(shape).astype("float32") for shape in shapes]
    return HeadWeights(*weights, random.permutation(size)[:count].astype("int32"))


def loops(weights, hidden, last):
    """Stern, Shazeer and Uszkoreit (2018), section 6, with the token before, one number at a time.

    Behind the last head it goes on.
    """
    found = []
    for head in [*range(H), *[H - 1] * 6]:
        x = [float(value) for value in hidden]
        before = [0.0] * D
        for c in range(C):
            if weights.token_ids[c] == last:
                before = [float(weights.kernel[d, c]) for d in range(D)]
        for f in range(F):
            total = float(weights.inner_bias[head, f])
            total += sum(float(hidden[d] * weights.inner[head, d, f]) for d in range(D))
            total += sum(before[d] * weights.inner_of_token[head, d, f] for d in range(D))
            for d in range(D):
                x[d] += max(total, 0.0) * weights.outer[head, f, d]
        x = [x[d] + weights.outer_bias[head, d] for d in range(D)]
        logits = [sum(x[d] * weights.kernel[d, c] for d in range(D)) for c in range(C)]
        logits = [logit + weights.bias[c] for c, logit in enumerate(logits)]
        last = int(weights.token_ids[logits.index(max(logits))])
        found.append(last)
    return found


def test_proposals_are_those_of_loops():
    weights, random = random_heads(), np.random.default_rng(8)
    heads = DraftHeads(weights)
    seen, known = set(), weights.token_ids.tolist()
    for last in [*known, 91] * 5:  # which no head proposes
        hidden = random.standard_normal(D).astype("float32")
        expected = loops(weights, hidden, last)
        seen |= {*expected}
        for n in (1, 2, 9):
            assert heads.propose([], [4, last], n, hidden) == expected[:n]
    assert seen == {*weights.token_ids.tolist()}
    assert heads.propose([5], [], 3) == []
    with pytest.raises(ValueError, match="states of 6 numbers, the model has 7"):
        heads.propose([], [], 3, np.zeros(7, "float32"))


@pytest.mark.parametrize("tie_weights", [True, False])
def test_examples_are_states_of_the_training_forward(tie_weights):
    model = model_with(tie_weights=tie_weights)
    sources, targets = [[5, 6, 7, 1], [8, 1]], [[4, 9, 3, 1], [6, 2, 1]]
    hidden, ahead = _examples(model.spec(), sources, targets, 2, SILENT)
    assert ahead.tolist() == [[4, 9, 3], [9, 3, 1], [3, 1, -1], [6, 2, 1], [2, 1, -1]]
    kernel, bias = _projection(model.spec(), np.arange(V))
    logits = []
    for source, target in zip(sources, targets, strict=True):
        inputs = {"encoder_token_ids": [source], "decoder_token_ids": [[0, *target[:-2]]]}
        logits += [*numpy(model({name: np.array(ids) for name, ids in inputs.items()}))]
    np.testing.assert_allclose(hidden @ kernel + bias, np.concatenate(logits), atol=2e-4)
    with pytest.raises(ValueError, match="targets of 2 to 128 tokens"):
        _examples(model.spec(), [[5, 1]], [[1]], 2, SILENT)


def test_heads_learn_what_follows():
    """A token depends on the state and on the token before; of some the second is not known."""
    random = np.random.default_rng(4)
    centres, following = random.standard_normal((5, D)), random.integers(0, C, (2, 5, C))
    kinds, made = np.arange(400) % 5, random.integers(0, C, 400)
    hidden = (2 * centres[kinds] + 0.05 * random.standard_normal((400, D))).astype("float32")
    ahead = following[0, kinds, made]
    places = np.stack([made, ahead, following[1, kinds, ahead]], axis=1)
    places[::3, 2] = -1
    kernel = (4 * random.standard_normal((D, C))).astype("float32")
    bias = random.standard_normal(C).astype("float32")
    weights = _fitted(hidden, places, kernel, bias, 400, SILENT)
    heads = DraftHeads(HeadWeights(*weights, kernel, bias, np.arange(C, dtype="int32")))
    states = (2 * centres).astype("float32")
    for kind, state in enumerate(states):
        for c in range(C):
            ahead = following[0, kind, c]
            assert heads.propose([], [c], 2, state) == [ahead, following[1, kind, ahead]]


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
def test_heads_are_float32_under_any_policy(policy, tmp_path):
    random = np.random.default_rng(13)
    hidden, kernel = (random.standard_normal(shape).astype("float32") for shape in ((9, D), (D, C)))
    places, bias = random.integers(0, C, (9, 3)), np.zeros(C, "float32")
    keras.config.set_dtype_policy(policy)
    trained = _fitted(hidden, places, kernel, bias, 1, SILENT)
    weights = HeadWeights(*trained, kernel, bias, np.arange(C, dtype="int32"))
    DraftHeads(weights).save(tmp_path / "draft.npz")
    assert load_draft(tmp_path / "draft.npz").propose([], [], 2, hidden[0])


def test_translations_stay_as_they_are(greedy_demo):
    expected = [greedy_demo(text) for text in TEXTS]
    depth, size = greedy_demo.model.hidden_dim, greedy_demo.model.target_vocabulary_size
    hostile = random_heads(depth, count=C, size=size)
    pairs = [*zip(TEXTS, expected, strict=True)]
    trained = DraftHeads.train(greedy_demo.model, greedy_demo.tokenizer, pairs, epochs=60)
    for heads, least in ((DraftHeads(hostile), 0), (trained, 5)):
        drafting = dataclasses.replace(greedy_demo, draft=copy.deepcopy(heads))
        assert [drafting(text) for text in TEXTS] == expected
        report = drafting.draft_report
        assert report.accepted >= least and report.proposed > report.accepted
    other = dataclasses.replace(greedy_demo, draft=DraftHeads(random_heads(size=size)))
    with pytest.raises(ValueError, match="`draft` has heads for states of 6 numbers"):
        other(TEXTS[0])


def test_wrong_arguments_are_refused(greedy_demo):
    pairs = [("A house.", "Ein Haus.")]
    for name, value in (("heads", 9), ("epochs", 0), ("max_pairs", 0)):
        with pytest.raises(ValueError, match=f"`{name}`"):
            DraftHeads.train(greedy_demo.model, greedy_demo.tokenizer, pairs, **{name: value})
    with pytest.raises(ValueError, match="`pairs` must hold pairs"):
        DraftHeads.train(greedy_demo.model, greedy_demo.tokenizer, [])


def test_files_are_read_back_and_damaged_ones_refused(tmp_path):
    path, weights = tmp_path / "draft.npz", random_heads()
    DraftHeads(weights).save(path)
    hidden = np.random.default_rng(1).standard_normal(D).astype("float32")
    expected = DraftHeads(weights).propose([], [], 3, hidden)
    for loaded in (DraftHeads.load(path), load_draft(path)):
        assert loaded.propose([], [], 3, hidden) == expected
    known = {"heads": np.array([2]), **weights._asdict()}
    damages = {
        "version": {"heads": np.array([1])},
        "shape": {"inner": weights.inner.swapaxes(1, 2)},
        "fewer": {"token_ids": weights.token_ids[:-1]},
        "none": {name: known[name][..., :0] for name in ("kernel", "bias", "token_ids")},
        "kind": {"bias": weights.bias.astype("float64")},
        "floats": {"token_ids": weights.token_ids.astype("float32")},
        "infinite": {"outer": weights.outer * np.inf},
        "flat": {"outer": weights.outer.reshape(-1)},
        "pickled": {"bias": np.array([1, {}], object)},
        "no axes": {"token_ids": np.array(5, "int32")},
        "negative": {"token_ids": weights.token_ids - 100},
    }
    for name, changes in damages.items():
        np.savez(path, **{**known, **changes})
        for load in (DraftHeads.load, load_draft):
            with pytest.raises(DamagedFile, match="is no draft, or is damaged"):
                load(path)
                pytest.fail(name)
    np.savez(path, **{name: known[name] for name in ("heads", "inner")})
    with pytest.raises(DamagedFile, match="is no draft"):
        DraftHeads.load(path)


def test_either_draft_is_known_by_its_file(greedy_demo, tmp_path):
    draft = LexicalDraft.train(greedy_demo.tokenizer, [("A house.", "Ein Haus.")])
    draft.save(tmp_path / "draft.npz")
    loaded = load_draft(tmp_path / "draft.npz")
    assert loaded.propose([4], [], 3) == draft.propose([4], [], 3)
    with pytest.raises(DamagedFile, match="is no draft"):
        DraftHeads.load(tmp_path / "draft.npz")
