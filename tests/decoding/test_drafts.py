"""`LexicalDraft`: n-grams against counters, the lexicon against loops, the file against damage."""

import collections
import copy
import zipfile

import numpy as np
import pytest

from keras_attention import LexicalDraft, Tokenizer
from keras_attention.decoding import lexicon, ngrams
from keras_attention.decoding.lexicon import train_lexicon, translations
from keras_attention.decoding.ngrams import continuations, count_ngrams
from keras_attention.utils.files import DamagedFile

pytestmark = pytest.mark.backends("torch")

V, ORDER, START, END = 7, 4, 5, 6


def sequences(number=30, seed=2):
    random = np.random.default_rng(seed)
    return [[START, *random.integers(0, 4, random.integers(0, 9)), END] for _ in range(number)]


def brute_force(texts, history):
    """Witten and Bell's estimate from counters, from the shortest context to the longest."""
    estimate, left = collections.Counter(), 1.0
    for size in range(1, min(ORDER - 1, len(history)) + 1):
        context = tuple(history[-size:])
        follows = collections.Counter(
            text[i + size]
            for text in texts
            for i in range(len(text) - size)
            if tuple(text[i : i + size]) == context
        )
        if not follows:
            break
        total, kinds = sum(follows.values()), len(follows)
        shorter = estimate
        estimate = collections.Counter()
        for token in {*follows, *shorter}:
            estimate[token] = (follows[token] + kinds * shorter[token]) / (total + kinds)
        left *= kinds / (total + kinds)
    return estimate, left


def test_ngrams_back_off_as_counters_say():
    texts = sequences()
    levels = count_ngrams(texts, V, ORDER)
    assert len(levels) == ORDER - 1
    random = np.random.default_rng(4)
    histories = [[START, *random.integers(0, 5, n)] for n in (0, 1, 2, 3, 5, 8) for _ in range(6)]
    histories = [list(map(int, history)) for history in histories]
    for history in histories:
        found, left = continuations(levels, history, V)
        expected, rest = brute_force(texts, history)
        assert found == pytest.approx(dict(expected)) and left == pytest.approx(rest)
        assert sum(found.values()) + left == pytest.approx(1.0)
    assert continuations(levels, [4], V) == ({}, 1.0)  # never seen


def test_the_most_frequent_continuations_are_kept(monkeypatch):
    texts = sequences()
    whole, _ = continuations(count_ngrams(texts, V, 2), [2], V)
    monkeypatch.setattr(ngrams, "MOST_CONTINUATIONS", 2)
    kept, left = continuations(count_ngrams(texts, V, 2), [2], V)
    best = sorted(whole, key=lambda token: (-whole[token], token))[:2]
    assert kept == {token: whole[token] for token in best} and len(whole) > 2 and left > 0


def loops(sources, targets):
    """Model 1 of Brown et al., one pair of tokens at a time."""
    pairs = list(zip(sources, targets, strict=True))
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(lexicon.ITERATIONS):
        counts, totals = collections.Counter(), collections.Counter()
        for source, target in pairs:
            for y in target:
                total = sum(t[x, y] for x in source)
                for x in source:
                    counts[x, y] += t[x, y] / total
                    totals[x] += t[x, y] / total
        t = {(x, y): count / totals[x] for (x, y), count in counts.items()}
        t = collections.defaultdict(float, t)
    return t


def test_the_lexicon_is_that_of_loops(monkeypatch):
    random = np.random.default_rng(8)
    sources, targets = (
        [random.integers(0, size, random.integers(1, 6)).tolist() for _ in range(25)]
        for size in (5, 4)
    )
    found = train_lexicon(sources, targets, 6, 4)
    expected = loops(sources, targets)

    def of(*source):
        tokens, probabilities = translations(found, source)
        return dict(zip(tokens.tolist(), probabilities.tolist(), strict=True))

    for x in range(6):
        assert of(x) == pytest.approx(
            {y: expected[x, y] for y in range(4) if expected[x, y] >= lexicon.LEAST_PROBABILITY},
            rel=1e-5,
        )
    assert of(5) == of() == {}  # in no sentence
    both = of(0, 3)
    assert both[2] == pytest.approx((expected[0, 2] + expected[3, 2]) / 2, rel=1e-4)
    assert of(99) == {}  # of another tokenizer
    # Of a large text the first pairs count.
    number = sum(len(s) * len(t) for s, t in zip(sources[:9], targets[:9], strict=True))
    monkeypatch.setattr(lexicon, "MOST_PAIRS", number)
    first = train_lexicon(sources, targets, 6, 4)
    for one, other in zip(first, train_lexicon(sources[:9], targets[:9], 6, 4), strict=True):
        np.testing.assert_array_equal(one, other)


PAIRS = [
    ("a red house", "ein rotes Haus"),
    ("a blue house", "ein blaues Haus"),
    ("a red car", "ein rotes Auto"),
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([text for pair in PAIRS for text in pair], vocabulary_size=300)


@pytest.fixture
def draft(tokenizer):
    return LexicalDraft.train(tokenizer, PAIRS)


def test_the_source_decides_between_continuations(draft, tokenizer):
    for source, target in PAIRS:
        ids = [*tokenizer.encode([source])[0], tokenizer.end_token_id]
        output = [*tokenizer.encode([target])[0], tokenizer.end_token_id]
        assert draft.propose(ids, [], 30)[: len(output)] == output
        assert draft.propose(ids, output[:1], 2) == output[1:3]
    assert draft.propose([], [], 1) and draft.propose([10**6], [10**6], 2) == []


def test_a_draft_is_the_same_after_saving_and_in_another_process(draft, tokenizer, tmp_path):
    """Copies take the same way as processes' messages."""
    path = tmp_path / "draft.npz"
    draft.save(path)
    for source, _ in PAIRS:
        ids = tokenizer.encode([source])[0]
        wanted = draft.propose(ids, [], 9)
        assert len(wanted) > 3
        for other in (LexicalDraft.load(path), copy.deepcopy(draft)):
            assert other.propose(ids, [], 9) == wanted


def saved(draft, path, **changes):
    """Write a draft with other arrays."""
    draft.save(path)
    with np.load(path) as arrays:
        changed = {**arrays, **changes}
    np.savez(path, **changed)


def overflowing(starts):
    """Return places of which one is far outside, though the differences wrap around to be positive."""
    changed = starts.copy()
    changed[1:3] = 5 * 10**18, -5 * 10**18
    assert (np.diff(changed[:4]) >= 0).all()
    return changed


def test_damaged_files_are_refused(draft, tmp_path):
    path = tmp_path / "draft.npz"
    draft.save(path)
    content = path.read_bytes()
    with np.load(path) as arrays:
        known = dict(arrays)
    damages = {
        "cut off": lambda: path.write_bytes(content[: len(content) // 2]),
        "no archive": lambda: path.write_bytes(b"text"),
        "pickled": lambda: saved(draft, path, numbers=np.array([1, {}], object)),
        "version": lambda: saved(draft, path, numbers=np.array([2, 0])),
        "token": lambda: saved(draft, path, level1_tokens=known["level1_tokens"] + 300),
        "starts": lambda: saved(draft, path, lexicon_starts=known["lexicon_starts"][:-1] - 1),
        "shape": lambda: saved(draft, path, frequencies=np.ones((3, 5), "float32")),
        "counts": lambda: saved(draft, path, level2_totals=known["level2_totals"] * 0),
        "compressed": lambda: np.savez_compressed(path, **known, zeros=np.zeros(10**6)),
        "empty": lambda: saved(draft, path, lexicon_starts=known["lexicon_starts"][:0]),
        "floats": lambda: saved(draft, path, lexicon_tokens=known["lexicon_tokens"] * 1.0),
        "kinds": lambda: saved(draft, path, level1_kinds=-known["level1_kinds"]),
        "tiny": lambda: saved(
            draft, path, lexicon_probabilities=np.full(len(known["lexicon_tokens"]), 1e-60)
        ),
        "overflow": lambda: saved(draft, path, lexicon_starts=overflowing(known["lexicon_starts"])),
        "short keys": lambda: saved(draft, path, level1_keys=known["level1_keys"].astype("int32")),
        "infinite": lambda: saved(draft, path, numbers=np.array([np.inf, 0])),
        "missing": lambda: np.savez(path, numbers=known["numbers"]),
    }
    for name, damage in damages.items():
        damage()
        with pytest.raises(DamagedFile, match="is no draft, or is damaged"):
            LexicalDraft.load(path)
            pytest.fail(name)


def test_a_header_that_promises_more_than_the_file_has_is_refused(draft, tmp_path):
    path = tmp_path / "draft.npz"
    draft.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    shape = b"(2,)"
    assert shape in parts["numbers.npy"]
    header = parts["numbers.npy"].replace(shape + b", }" + b" " * 13, b"(20000000000000,), }"[:20])
    parts["numbers.npy"] = header
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(DamagedFile, match="numbers"):
        LexicalDraft.load(path)


def test_wrong_arguments_are_refused(tokenizer):
    for pairs in ([], ["one text"]):
        with pytest.raises(ValueError, match="`pairs` must hold pairs"):
            LexicalDraft.train(tokenizer, pairs)
    with pytest.raises(ValueError, match="`order`"):
        LexicalDraft.train(tokenizer, PAIRS, order=1)
