"""The Translator against a slow search over the training forward, and its edges.

Numba decodes `small_model` on every backend, so once is enough; the plain search decodes `CopyModel`. What
PyTorch alone runs has nothing of a backend: it compiles nothing.
"""

import dataclasses
import functools
import itertools
import math
import pickle  # noqa: TID251
import re
import warnings

import keras
import numpy as np
import pytest

from keras_attention import Translation, Translator
from keras_attention.decoding import ForcedPrefix, TextConstraint, model_search
from keras_attention.decoding.requests import Batching
from keras_attention.decoding.result_lines import result_lines
from keras_attention.decoding.unusual_texts import UnusualText, UnusualTexts
from keras_attention.spec.parts import as_array, check_finite
from keras_attention.utils import progress
from tests.decoding.letters import (
    END,
    UNKNOWN,
    CopyModel,
    LetterTokenizer,
    assert_alike,
    assert_found,
    forward_log_probabilities,
    random_texts,
    small_model,
)
from tests.decoding.oracle_search import penalty, slow_beam_search

BACKEND = keras.backend.backend()
ON_TORCH = BACKEND == "torch"  # which compiles nothing: where all cases run


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def copier():
    return Translator(CopyModel(), LetterTokenizer(31), beam_size=2, max_extra_length=2)


# --- what it finds -------------------------------------------------------------------------------


@pytest.mark.backends("torch")
def test_same_as_slow_search_over_the_training_forward(model):
    """Sentences of different lengths, so of different limits; a beam larger than the vocabulary."""
    texts = ["cab", "gabelnick", "m", "hidegf"]
    narrow = Translator(model, LetterTokenizer(), beam_size=3, max_extra_length=2)
    best = narrow.translate(texts)
    three = narrow.translate(texts, n_best=3)
    many = dataclasses.replace(narrow, beam_size=19, max_extra_length=0).translate(texts, 19)
    greedy = dataclasses.replace(narrow, beam_size=1).translate(texts)
    endings = set()
    for line, text in enumerate(texts):
        limit = len(text) + 1 + 2
        row = forward_log_probabilities(model, text, limit)

        def searched(beam_size, stop, limit=limit, row=row):
            return slow_beam_search(row, 17, END, limit, 0.6, beam_size, stop)[0]

        assert_found(three[line], searched(3, "n_best"))
        assert_found(best[line], searched(3, "best")[:1])
        assert_found(greedy[line], searched(1, "best"))
        endings |= {best[line][0].is_finished, greedy[line][0].is_finished}
        if line in (0, 2):
            assert_found(many[line], searched(19, "n_best", limit - 2))
    assert endings == {True, False}, "the lines test both"


@pytest.mark.backends("torch")
def test_n_best_goes_on_until_all_are_certain():
    model = small_model(seed=4)
    translator = Translator(model, LetterTokenizer(), beam_size=3, max_extra_length=2)
    for text in ("em", "leglb"):
        limit = len(text) + 1 + 2
        row = forward_log_probabilities(model, text, limit)
        expected, _ = slow_beam_search(row, 17, END, limit, 0.6, 3, "n_best")
        only_the_best_certain, _ = slow_beam_search(row, 17, END, limit, 0.6, 3, "best")
        assert only_the_best_certain != expected
        assert_found(translator.translate(text, n_best=3), expected)


@pytest.mark.backends("torch")
def test_the_same_whatever_the_batch_the_order_and_the_padding(model):
    texts = random_texts(12, longest=19)
    reference = Translator(model, LetterTokenizer(), beam_size=3, max_extra_length=5)
    expected = reference.translate(texts, n_best=2)
    assert len({best[0].text for best in expected}) > 5, "the source matters"
    order = np.random.default_rng(2).permutation(len(texts))
    for options in ({"batch_size": 1}, {"batch_tokens": 112}):
        translator = dataclasses.replace(reference, **options)
        shuffled = translator.translate([texts[line] for line in order], n_best=2)
        assert_alike(shuffled, [expected[line] for line in order], rtol=1e-5, atol=0.0)
    assert reference(texts) == [best[0].text for best in expected], "the best of any n is one"


def test_string_in_string_out(copier):
    assert copier("bed") == "bed"
    assert copier(["bed", "cabin"]) == ["bed", "cabin"]
    assert copier(text for text in ("cabin", "b日d")) == ["cabin", "b?d"]
    best = copier.translate("bed", n_best=2)
    assert [type(t) for t in best] == [Translation, Translation]
    assert best[0] == copier.translate(["bed"])[0][0]
    likely = math.exp(9) / (math.exp(9) + math.exp(8) + 29)
    end = math.exp(9) / (math.exp(9) + 30)
    assert best[0].score == pytest.approx(
        (3 * math.log(likely) + math.log(end)) / penalty(4, 0.6), rel=1e-4
    )
    assert best[1].score == pytest.approx(best[0].score - 1 / penalty(4, 0.6), rel=1e-4)
    assert best[0].token_ids == (4, 7, 6) and best[0].is_finished
    assert best[1].text in ("zed", "bzd", "bez")


@pytest.mark.parametrize("kind", ["model", *["spec", "constrained"] * ON_TORCH])
def test_goes_to_another_process(model, kind):
    """With its search compiled, of which the copy knows nothing."""
    options = {"beam_size": 3, "length_penalty": 0.3, "max_extra_length": 4, "batch_size": 2}
    if kind == "spec":
        pytest.importorskip("numba")
        options["engine"] = "numba"
    if kind == "constrained":
        prefixes = ForcedPrefix(model.vocabulary_size)
        options["constraint"] = TextConstraint(prefixes, functools.partial(begins_with_c, prefixes))
    decoded = model.spec().map_weights(as_array) if kind == "spec" else model
    translator = Translator(decoded, LetterTokenizer(), **options)
    texts = ["abc", "", "ddaab", "b"]
    expected = translator.translate(texts, n_best=2)
    again = pickle.loads(pickle.dumps(translator))
    assert {name: getattr(again, name) for name in options if name != "constraint"} == {
        name: value for name, value in options.items() if name != "constraint"
    }
    assert_alike(again.translate(texts, n_best=2), expected, rtol=1e-5, atol=0.0)
    begun = {best[0].text[:1] for best in expected}
    assert kind != "constrained" or begun == {"c", ""}


def begins_with_c(prefixes, texts, max_lengths, beam_size):
    return prefixes.start([[5] if text else [] for text in texts], max_lengths, beam_size)


def test_translates_with_the_present_weights():
    """The compiled search must not hold the weights of its first use."""
    translator = Translator(CopyModel(), LetterTokenizer(31), beam_size=2)
    assert translator("cab") == "cab"
    translator.model.shift.assign(2.0)
    assert translator("cab") == "ecd"


def test_few_shapes_each_compiled_once():
    model = CopyModel()
    translator = Translator(model, LetterTokenizer(31), beam_size=1, batch_tokens=96)
    for number in (2, 3, 4, 19, 6):
        texts = random_texts(number, longest=29, seed=number)
        assert translator(texts) == texts
    assert set(model.shapes) <= {(1, 16), (4, 16), (6, 16), (1, 32), (3, 32)}
    if BACKEND != "torch":
        assert len(model.shapes) == len(set(model.shapes)), "compiled twice"


# --- edges ---------------------------------------------------------------------------------------


@pytest.mark.backends("torch")
def test_empty_lines_keep_their_places_and_never_meet_the_model():
    model = CopyModel()
    copier = Translator(model, LetterTokenizer(31), beam_size=2)
    nothing = Translation("", 0.0, (), True)
    assert copier([]) == [] and copier.translate([], n_best=2) == []
    assert copier("") == "" and copier.translate(" \t\n", n_best=2) == [nothing]
    assert copier(["", " "]) == ["", ""] and model.shapes == []
    assert copier(["", "bed", "  ", "cabin", "\n"]) == ["", "bed", "", "cabin", ""]


@pytest.mark.backends("torch")
def test_longer_than_learned_positions():
    model = small_model(position_layout="learned", max_length=9)
    translator = Translator(model, LetterTokenizer(), beam_size=2, max_extra_length=50)
    fits, too_long = "abcdefgh", "abcdefghi"
    (found,) = translator.translate(fits)
    assert len(found.token_ids) + found.is_finished <= 9
    with pytest.raises(ValueError, match="Text 2 has 10 tokens, end token included.* 9 positions"):
        translator([fits, "", too_long])
    with pytest.raises(ValueError, match="^Line 1003 has 10 tokens, .*: 'abcdefghi'"):
        list(result_lines(translator, [fits, "", too_long], first=1000, n_best=1, as_json=False))


class KnowingTokenizer(LetterTokenizer):
    """Knows what it does not know."""

    familiarity = [1] * 31
    familiarity[UNKNOWN], familiarity[END] = -1, 0


@pytest.mark.backends("torch")
def test_one_warning_tells_of_all_unusual_texts():
    translator = Translator(CopyModel(), KnowingTokenizer(31), beam_size=1)
    texts = ["bed", "日本", "abcdefg", "", "b日d", "日本語ab" * 2, "abcdef"]
    message = "^2 of 7 texts consist mostly of .*: 1, 5. Are they"
    with pytest.warns(UnusualText, match=message) as told:
        expected = translator(texts)
    assert [warning.category for warning in told].count(UnusualText) == 1
    for translate in (translator, translator.translate):
        with pytest.warns(UnusualText, match="^1 of 1 texts consist") as told:
            translate("日本")
        places = [one.filename for one in told if one.category is UnusualText]
        assert places == [__file__]  # where the user calls
    translator = dataclasses.replace(translator, longest_source=7)
    message = (
        r"^2 of 7 texts are longer than any in training \(7 tokens\): 2, 5. Split.* 2 of 7 .*: 1, 5"
    )
    with pytest.warns(UnusualText, match=message) as told:
        assert translator(texts) == expected
    assert [warning.category for warning in told].count(UnusualText) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusualText)
        translator(["bed", "b日d", "", "abcdef"])
        noted = UnusualTexts("lines", first=1)
        for part in (texts[:2], texts[2:]):
            list(result_lines(translator, part, 0, n_best=1, as_json=False, unusual=noted))
    assert (noted.long, noted.unknown, noted.count) == ([3, 6], [2, 6], 7)


@pytest.mark.backends("torch")
def test_limit_is_the_own_length():
    """Lines that never end run to their own limits, not to that of their batch."""
    endless = Translator(
        CopyModel(ends=False), LetterTokenizer(31), beam_size=1, max_extra_length=3
    )
    assert endless(["ab", "abcde"]) == ["abzzzz", "abcdezzzz"]
    assert not endless.translate("ab")[0].is_finished
    short = dataclasses.replace(endless, model=CopyModel(max_length=5, ends=False))
    assert short(["a", "abcd"]) == ["azzzz", "abcdz"]


def test_diverged_model_is_named():
    """By its first weight that is not finite; or, if its weights are, by a text."""

    class Overflowing(CopyModel):
        def decode_step(self, *arguments):
            logits, cache = super().decode_step(*arguments)
            return logits * np.inf, cache

    for model, problem in (
        (CopyModel(), "weight '.*shift' is infinite or NaN at 1 of 1 places"),
        (Overflowing(), "text 1 are not finite"),
    ):
        model.shift.assign(np.nan if type(model) is CopyModel else 0.0)
        translator = Translator(model, LetterTokenizer(31), beam_size=2, max_extra_length=1)
        with pytest.raises(ValueError, match=problem) as caught:
            translator(["", "bed"])
        assert isinstance(caught.value, FloatingPointError)


@pytest.mark.parametrize(
    ("engine", "bad"),
    [(BACKEND, np.nan), *[("auto", np.nan), ("auto", np.inf), ("plain", np.inf)] * ON_TORCH],
)
def test_a_weight_that_is_not_finite_is_named(engine, bad):
    """After the weights changed, too. Large numbers, whose sum overflows, are finite."""
    model = small_model(num_layers=2)
    translator = Translator(model, LetterTokenizer(), beam_size=2, engine=engine)
    assert len(translator(["abc"])) == 1
    weight = model.decoder_blocks[1].cross_attention.key_dense.kernel
    values = keras.ops.convert_to_numpy(weight).copy()
    weight.assign(np.where(np.arange(values.size).reshape(values.shape) == 7, bad, values))
    with pytest.raises(FloatingPointError, match="1 of 144 places.*diverged") as caught:
        translator(["abc"])
    assert re.search(
        r"decoder.*(1\.cross_attention|block_2/cross_attention).*key", str(caught.value)
    )
    weight.assign(np.full_like(values, 3e38))
    check_finite({"key": weight})
    weight.assign(values)
    assert len(translator(["abc"])) == 1


@pytest.mark.backends("torch")
@pytest.mark.parametrize("texts", [None, b"bed", {"bed"}, {"bed": "cab"}, ["bed", 7]], ids=repr)
def test_texts_must_be_strings(copier, texts):
    with pytest.raises(ValueError, match=r"`texts` must be a list of str\. Received: texts"):
        copier(texts)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("n_best", [0, 3, 1.0], ids=repr)
def test_n_best_out_of_range(copier, n_best):
    with pytest.raises(ValueError, match="`n_best` must be .*Received: n_best="):
        copier.translate(["bed"], n_best=n_best)


@pytest.mark.backends("torch")
def test_a_wide_beam_has_fewer_rows_and_a_limit():
    """The buffers hold a number for each row, each beam, and each slot of all beams."""
    lengths, wide = [200] * 60, 1000
    for beam_size, rows in ((4, 40), (200, 27), (1000, 1)):
        batching = Batching(8000, None, None, beam_size, max_extra_length=45)
        ((first, shape), *_) = batching.of_like_length(lengths)
        assert len(first) == shape[0] == rows
        assert rows == 40 or 2**28 - beam_size**2 * 245 < rows * beam_size**2 * 245 <= 2**28
    translator = Translator(
        CopyModel(), LetterTokenizer(31), beam_size=wide, max_extra_length=45, show_progress=False
    )
    with pytest.raises(ValueError, match="Text 1 has 225 tokens.*beam_size=1000.*smaller beam"):
        translator(["bed", "c" * 224])


@pytest.mark.backends("torch")
def test_foreign_tokenizer(model):
    with pytest.raises(ValueError, match="vocabulary_size 17, the tokenizer 18"):
        Translator(model, LetterTokenizer(18))
    foreign = LetterTokenizer()
    foreign.end_token_id = 3
    with pytest.raises(ValueError, match="end_token_id 1, the tokenizer 3"):
        Translator(model, foreign)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("wrong", [-1, 17])
def test_ids_outside_the_vocabulary_are_refused(model, wrong, monkeypatch):
    """Before any engine sees them: compiled code, and JAX, would read another row of the table."""
    translator = Translator(model, LetterTokenizer(), engine="numpy")
    monkeypatch.setattr(LetterTokenizer, "encode", lambda self, texts: [[3, wrong] for _ in texts])
    with pytest.raises(ValueError, match=f"less than 17, .*(from {wrong} to|to {wrong}\\.)"):
        translator("bed")


@pytest.mark.backends("torch")
def test_settings_cannot_change_under_the_compiled_search(copier):
    with pytest.raises(dataclasses.FrozenInstanceError):
        copier.beam_size = 4


# --- files and progress --------------------------------------------------------------------------


@pytest.mark.backends("torch")
def test_translate_file(copier, tmp_path, monkeypatch):
    """Whole or not at all, and in the place of no other file."""
    source, destination = tmp_path / "source.txt", tmp_path / "translated.txt"
    source.write_bytes(b"\xef\xbb\xbfbed\r\n\ncabin\n")  # As Windows marks UTF-8.

    def interrupt(self, ids):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LetterTokenizer, "decode", interrupt)
        copier.translate_file(source, destination)
    assert list(tmp_path.iterdir()) == [source]
    copier.translate_file(source, destination)
    for wrong, message in (
        (destination, "translated.txt' exists"),
        (source, "both a file to read"),
    ):
        with pytest.raises(ValueError, match=message):
            copier.translate_file(source, wrong)
    assert destination.read_text(encoding="utf-8") == "bed\n\ncabin\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "translated.txt"]


def noted(monkeypatch):
    """A list of what is noted on the progress line from now on."""
    notes, note = [], progress.Progress.note
    monkeypatch.setattr(
        progress.Progress, "note", lambda self, text: (notes.append(text), note(self, text))
    )
    return notes


@pytest.mark.backends("tensorflow", "torch")
def test_progress_of_long_work_only(copier, capsys, monkeypatch):
    copier(["bed", "cabin", ""])  # the first time it is compiled, which may be long work
    capsys.readouterr()
    copier(["bed", "cabin", ""])
    assert capsys.readouterr() == ("", "")
    notes = noted(monkeypatch)
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    monkeypatch.setattr(progress, "PIPE_SECONDS", -1.0)
    quiet = dataclasses.replace(copier, batch_size=1, show_progress=False)
    chatty = dataclasses.replace(copier, batch_size=1)
    quiet(["bed", "cabin", ""])
    assert capsys.readouterr() == ("", "")
    chatty(["bed", "cabin", ""])
    out, err = capsys.readouterr()
    assert out == ""
    # How often a line is shown depends on the clock, what it counts does not.
    counted = list(dict.fromkeys(line.split(",")[0] for line in err.splitlines()))
    assert counted[-2:] == [f"translating: {number} of 2 sentences" for number in (1, 2)]
    assert counted[:-2] in ([], ["translating: 0 of 2 sentences"])
    is_compiled = BACKEND != "torch"
    assert any(said.startswith("compiling for 1 x 16 tokens") for said in notes) == is_compiled
    assert not any("takes long" in note for note in notes)
    monkeypatch.setattr(model_search, "LONG_TOKENS", 15)
    chatty(["bed", "cab" * 6])
    assert any("tokens takes long: 'cabcabcabcabcabcab...'" in note for note in notes)


@pytest.mark.backends("torch")
def test_the_first_texts_of_a_machine(monkeypatch, capsys):
    """NumPy translates them as Numba would; who wants no progress line is told nothing."""
    engine = pytest.importorskip("keras_attention.engine.numba.engine")
    monkeypatch.setattr(engine, "is_on_disk", lambda *given: False)
    model_search._say_why_numpy.cache_clear()
    settings = {"beam_size": 3, "max_extra_length": 9}
    model, texts = small_model(num_layers=2), ["abcdefg", "bed", ""]
    numba = Translator(model, LetterTokenizer(), engine="numba", **settings).translate(texts, 2)
    capsys.readouterr()
    for show_progress in (False, True, True):
        first = Translator(model, LetterTokenizer(), show_progress=show_progress, **settings)
        monkeypatch.setattr(engine.NumbaEngine, "search", None)  # who calls it fails
        found = first.translate(texts, 2)
        assert [[t.token_ids for t in best] for best in found] == [
            [t.token_ids for t in best] for best in numba
        ]
        if not show_progress:
            assert not capsys.readouterr().err
    assert capsys.readouterr().err.count("NumPy stands in for it") == 1


@pytest.mark.parametrize("engine", [BACKEND, *["plain", "numba"] * ON_TORCH])
def test_a_note_ends_when_all_is_compiled(monkeypatch, engine):
    """A long text is named until its batch is done; tokens are counted as they are made."""
    notes = noted(monkeypatch)
    monkeypatch.setattr(model_search, "LONG_TOKENS", 16)
    translator = Translator(
        small_model(num_layers=2), LetterTokenizer(), beam_size=2, max_extra_length=9, engine=engine
    )
    long = "abcdefg" * 3
    found = translator.translate([long, "bed"], n_best=2)
    assert found == dataclasses.replace(translator, show_progress=False).translate([long, "bed"], 2)
    said = list(dict.fromkeys(notes))
    after = [later for text, later in itertools.pairwise(notes) if "compiling for" in text]
    assert bool(after) == (engine == "numba" or BACKEND != "torch")
    assert not any("compiling for" in text for text in after) and notes[-1] == ""
    counted = [re.search(r"'; (\d+) of at most (\d+) tokens made$", text) for text in said]
    numbers, limits = ([int(match[i]) for match in counted if match] for i in (1, 2))
    assert numbers == sorted(numbers) and {*limits} <= {25, 31, 41}
    if engine == BACKEND:  # The others tell now and then, or cannot know.
        assert numbers == list(range(1, numbers[-1] + 1)) and numbers[-1] >= 9


class ShoutingTokenizer(LetterTokenizer):
    """Spells two tokens with each letter: half of the alphabet is that of the other half."""

    def decode(self, ids):
        return "".join(chr(ord("a") + (int(id) - 2) // 2) for id in ids)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine", ["plain", BACKEND, "auto", "ctranslate2"])
def test_the_n_best_differ_in_their_text(engine):
    """The oracle: the whole beam as it is, of which later ones of a text are left out."""
    if engine == "ctranslate2":
        pytest.importorskip(engine)
    translator = Translator(
        small_model(), ShoutingTokenizer(), beam_size=7, max_extra_length=2, engine=engine
    )
    texts = ["cab", "gabel", "", "hid"]
    beams = translator.translate(texts, n_best=7, unique=False)
    lists = translator.translate(texts, n_best=3)
    repeats = 0
    for beam, found in zip(beams, lists, strict=True):
        wanted = {}
        for one in beam:
            wanted.setdefault(one.text, one)
        assert [one.token_ids for one in found] == [one.token_ids for one in [*wanted.values()][:3]]
        repeats += len({one.text for one in beam[:3]}) < 3
    assert repeats
    (every,) = translator.translate(texts[1:2], n_best=7)
    assert [one.text for one in every] == list(dict.fromkeys(one.text for one in beams[1]))
    with pytest.raises(ValueError, match="`unique` must be True or False"):
        translator.translate(texts, 2, unique=2)


@pytest.mark.backends("torch")
def test_an_empty_line_needs_no_extra_tokens(model):
    none = Translator(model, LetterTokenizer(), max_extra_length=0)
    assert none(["", "a"])[0] == ""
    shown = repr(dataclasses.replace(none, model=model.spec()))
    assert "num_layers" in shown and len(shown) < 2000


@pytest.mark.backends("torch")
def test_phrases_are_decoded_by_an_engine_that_can(model):
    pytest.importorskip("numba", reason="an extra: numba")
    translator = Translator(model, LetterTokenizer())
    assert translator.engine_for(1).name == translator.engine_for(1, prefixes=True).name == "numba"
    found = translator.engine_for(1, phrases=True)
    assert found.name != "numba" and "fastest" not in found.reason
