"""Constrained searches against the enumeration of all hypotheses that a plain Python rule accepts."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Translator, beam_search
from keras_attention.data.joints import Joints
from keras_attention.decoding import ForcedPrefix, RequiredPhrases, TextConstraint
from keras_attention.spec import SpecError
from keras_attention.spec.parts import as_array
from tests.decoding.constrained import LastToken, assert_all_found, search
from tests.decoding.letters import CopyModel, LetterTokenizer, assert_alike, small_model

BACKEND = keras.backend.backend()


def test_a_prefix_is_forced_and_the_rest_is_searched():
    prefixes, limits = [[2, 0], [], [3, 3, 2], [0]], [4, 3, 4, 2]
    tables = LastToken(seed=5, num_sentences=4, vocabulary_size=4)
    constraint = ForcedPrefix(4)
    got = search(tables, limits, 41, 1, constraint, constraint.start(prefixes, limits, 41))

    def accepts(sentence, tokens):
        prefix = tuple(prefixes[sentence])
        return tokens[: len(prefix)] == prefix

    assert_all_found(got, tables, limits, 1, accepts)


def contains(tokens, phrase):
    return any(tokens[i : i + len(phrase)] == phrase for i in range(len(tokens)))


def test_phrases_must_occur_before_the_end():
    phrases = [[[2, 0]], [[0, 0, 2]], [[3], [2]], [], [[2, 2], [3]]]
    limits, end, beam_size = [5, 5, 4, 3, 5], 1, 90
    tables = LastToken(seed=8, num_sentences=5, vocabulary_size=4)
    constraint = RequiredPhrases(4, end)
    start = constraint.start(phrases, limits, beam_size)
    got = search(tables, limits, beam_size, end, constraint, start)

    def accepts(sentence, tokens):
        """With the rule for the case that room runs out, by substrings."""
        wanted = [tuple(phrase) for phrase in phrases[sentence]]
        for index, token in enumerate(tokens):
            before = tokens[:index]
            missing = [phrase for phrase in wanted if not contains(before, phrase)]
            if missing and limits[sentence] - index <= sum(map(len, missing)) + 1:
                begun = {
                    phrase: max(n for n in range(len(phrase)) if n <= index
                                and before[index - n :] == phrase[:n])
                    for phrase in missing
                }  # fmt: skip
                first = min(missing, key=lambda phrase: len(phrase) - begun[phrase])
                if token != first[begun[first]]:
                    return False
        return all(contains(tokens, phrase) for phrase in wanted)

    assert_all_found(got, tables, limits, end, accepts)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_what_has_no_room_is_refused_with_its_text(engine):
    """Not cut; what just fits is made. Rows beside the sentences, which are not searched, need no room."""
    free = ForcedPrefix(17)
    constraint = TextConstraint(
        free, lambda texts, *how: free.start([[9] * len(text) for text in texts], *how)
    )
    model = small_model(seed=11)
    translator = Translator(
        model, LetterTokenizer(), max_extra_length=0, constraint=constraint, engine=engine
    )
    for found, text in zip(translator(["fed", "a", "cb"]), ["ggg", "g", "gg"], strict=True):
        assert found.startswith(text)
    two = RequiredPhrases(17, 1)
    constraint = TextConstraint(
        two, lambda texts, *how: two.start([[[8, 9, 10]]] * len(texts), *how)
    )
    translator = dataclasses.replace(translator, constraint=constraint)
    assert len(translator(["fed"] * 3)) == 3
    with pytest.raises(
        ValueError, match="text 'ab' needs phrases of 3 tokens, with the end 4.*=3.*Raise"
    ):
        translator(["fed", "ab"])


def ids_of(text):
    return LetterTokenizer().encode([text])[0]


FREE, TWO = ForcedPrefix(17), RequiredPhrases(17, 1)
# Of each text: its beginning backwards; its end and an `i`.
ON_TEXTS = {
    "prefix": (FREE, lambda text: ids_of(text)[1::-1]),
    "phrases": (TWO, lambda text: [ids_of(text)[-2:], [11]] if text else []),
}


@pytest.mark.parametrize(
    ("kind", "beam_size"),
    [("phrases", 3)] if BACKEND != "torch" else [*itertools.product(ON_TEXTS, (1, 3))],
)
def test_an_engine_finds_what_the_plain_search_finds(kind, beam_size):
    """In a batch that rows leave at different steps, and whose buffer is compacted."""
    constraint, of_text = ON_TEXTS[kind]

    def start(texts, max_lengths, beam_size):
        of_rows = [of_text(text) for text in texts]
        return constraint.start(of_rows, max_lengths, beam_size)

    plain = Translator(
        small_model(seed=11, num_layers=2), LetterTokenizer(), beam_size=beam_size, batch_size=8,
        max_extra_length=23, constraint=TextConstraint(constraint, start), engine="plain",
    )  # fmt: skip
    engine = dataclasses.replace(plain, engine="auto")
    # As `from_preset` gives it: what Numba lacks, the backend's engine does with the arrays.
    arrays = plain.model.spec().map_weights(as_array)
    spec = dataclasses.replace(plain, engine="auto", model=arrays)
    names = [translator.engine_for(1).name for translator in (plain, engine, spec)]
    assert names == ["plain", BACKEND, BACKEND]
    texts = ["abc", "", "degfabc", "hb", "gfedcbacbd"]
    expected, *others = (
        translator.translate(texts, n_best=beam_size) for translator in (plain, engine, spec)
    )
    assert len({len(found[0].token_ids) for found in expected if found}) > 1
    for found in others:
        assert_alike(found, expected)


@pytest.mark.backends("torch")
def test_what_cannot_have_constraints_is_named():
    constraint = TextConstraint(ForcedPrefix(31), lambda *batch: {})
    with pytest.raises(ValueError, match=r"CopyModel has no `spec\(\)`"):
        Translator(CopyModel(), LetterTokenizer(31), constraint=constraint, precision="int8")
    with pytest.raises(ValueError, match="'numba' makes the whole search, without constraints"):
        Translator(small_model(seed=11), LetterTokenizer(), constraint=constraint, engine="numba")
    with pytest.raises(SpecError, match="'numba' makes the whole search, without constraints"):
        spec = small_model(seed=11).spec().map_weights(as_array)
        Translator(spec, LetterTokenizer(), constraint=constraint, engine="numba")


PREFIX, REQUIRED = ForcedPrefix(5), RequiredPhrases(5, 1)
BEFORE_PHRASES = ForcedPrefix(5, then=REQUIRED)
WRONG = [
    (lambda: ForcedPrefix(0), "`vocabulary_size` must be"),
    (lambda: PREFIX.start([[1], [5]], [7, 7], 2), r"from 0 to 4. Received: prefixes\[1\]\[0\]=5"),
    (lambda: PREFIX.start([[1.5]], [7], 2), r"`prefixes\[0\]\[0\]` must be an int.*1\.5"),
    (lambda: PREFIX.start([[True]], [7], 2), r"`prefixes\[0\]\[0\]` must be an int.*True"),
    (lambda: PREFIX.start([[3, -1]], [7], 2), r"`prefixes\[0\]\[1\]` must be an int.*-1"),
    (lambda: PREFIX.start([3, 4], [7, 7], 2), r"`prefixes\[0\]` must be a list.*=3"),
    (lambda: PREFIX.start("word", [7], 2), "`prefixes` must be a list.*'word'"),
    (lambda: PREFIX.start([[3]], [7], 0), "`beam_size` must be an int"),
    (lambda: PREFIX.start([[], [2, 3, 4]], [1, 3], 2), r"3 tokens, with the end 4.*\[1\]=3"),
    (lambda: PREFIX.start([[3]], [7], 2, REQUIRED.start([[]], [7], 2)), "states.*with None"),
    (lambda: BEFORE_PHRASES.start([[3]], [7], 2), "`then` must be the states.*then=None"),
    (lambda: BEFORE_PHRASES.start([[3]], [7], 2, "x"), "`then` must be what its `start`.*'x'"),
    (
        lambda: BEFORE_PHRASES.start([[3]], [7], 2, REQUIRED.start([[]], [7], 5)),
        r"`then` must be tensors \(1, 2, \.\.\.\)",
    ),
    (lambda: REQUIRED.start([[[]]], [9], 2), "phrase needs tokens"),
    (lambda: REQUIRED.start([[[2, 1]]], [9], 2), "must not hold the end token 1"),
    (lambda: REQUIRED.start([[[2, 3], [4]]], [3], 2), "3 tokens, with the end 4.*=3"),
    (lambda: REQUIRED.start([["ab"]], [7], 2), r"`phrases\[0\]\[0\]` must be a list.*'ab'"),
    (lambda: REQUIRED.start([[[3]]], [7, 7], 2), "each of 1 sentences"),
    (lambda: REQUIRED.start([[[3]]], [7.5], 2), r"`max_lengths\[0\]` must be an int.*7\.5"),
]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("make, message", WRONG)
def test_what_is_no_constraint_or_cannot_start_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.backends("torch")
def test_states_of_another_batch_are_refused():
    constraint = ForcedPrefix(4)
    step = lambda token_ids, index, cache: (ops.zeros((2, 3, 4)), cache)  # noqa: E731
    options = {"beam_size": 3, "start_token_id": 0, "end_token_id": 1, "constraint": constraint}
    for state in (
        constraint.start([[2]], [7], 3),
        constraint.start([[2], [3]], [7, 7], 5),
        {"prefix": 1.5},
    ):
        with pytest.raises(ValueError, match=r"must be tensors \(2, 3, \.\.\.\)"):
            beam_search(step, {}, [4, 4], constraint_state=state, **options)
    given = TextConstraint(constraint, lambda texts, *how: constraint.start([[2]], [4], how[1]))
    with pytest.raises(ValueError, match=r"must be tensors \(2, 3, \.\.\.\)"):
        given.of_batch(["a"], [4, 0], 3)


@pytest.mark.backends("torch")
def test_a_phrase_may_begin_at_the_last_free_position_within_a_word():
    room, end, tokens = 4, 1, [0, 2, 3, 4, 5, 6, 7]
    joints = Joints(np.zeros(8, "bool"), np.arange(8) == 5)  # Of "c@@ d" the first goes on.
    constraint = RequiredPhrases(8, end, joints)
    tables = LastToken(seed=3, num_sentences=1, vocabulary_size=8)
    start = constraint.start([[(5, 6)]], [room], 400)
    [got] = search(tables, [room], 400, end, constraint, start)
    found = {found[:-1] for _, found, is_finished in got if is_finished}
    behind = {(5, 6, token) for token in tokens}
    before = {(token, 5, 6) for token in tokens if token != 5}  # which would join the phrase
    assert found == {(5, 6)} | behind | before


@pytest.mark.backends("torch")
@pytest.mark.parametrize("asked", [{"prefixes": ["a", "c!"]}, {"phrases": [["a"], ["b", "c!"]]}])
def test_what_the_vocabulary_cannot_spell_is_refused(asked):
    translator = Translator(CopyModel(), LetterTokenizer(31), beam_size=2, max_extra_length=4)
    with pytest.raises(ValueError, match=r"Text 1 .*vocabulary has not all characters of 'c!'"):
        translator.translate(["ab", "cd"], **asked)
