"""Symbols of the user's own stay whole, in every algorithm, wherever they stand; prefixes and their tags."""

import pickle  # noqa: TID251
import random

import numpy as np
import pytest

from keras_attention import ParallelText, Tokenizer, TokenStore, corpus_from_tsv
from keras_attention.data.normalization import normalize
from keras_attention.data.symbols import check_tags
from tests.data.test_tokenizer import TEXTS

pytestmark = pytest.mark.backends("tensorflow")

SYMBOLS = ["<2de>", "<bt>", "<2pt_BR>", "<2d>"]


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def tokenizer(request):
    sizes = {"bpe": 400, "wordpiece": 160}
    if request.param == "wordpiece":
        pytest.importorskip("tensorflow_text")
    texts = [*TEXTS, "<bt> <2de> The fox <bt>", "a b c d e x y z < > 2 , . _ <2 de> <>"] * 3
    return Tokenizer.train(texts, sizes[request.param], request.param, symbols=[*SYMBOLS, "<bt>"])


def random_texts(count=300):
    """Symbols among words, spaces, brackets and what looks nearly like a symbol."""
    draw = random.Random(8)
    parts = [*SYMBOLS, " ", " ", ", ", *"fox dog the <2 de> < > 2 _ <2de b".split()]
    return [normalize("".join(draw.choices(parts, k=draw.randint(1, 12)))) for _ in range(count)]


def oracle_count(text):
    """How often each symbol stands in a text, by hand: none holds another."""
    return {symbol: text.count(symbol) for symbol in SYMBOLS}


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_symbols_are_whole_and_texts_come_back(tokenizer, dropout):
    assert tokenizer.symbols == tuple(SYMBOLS)
    if dropout and tokenizer.algorithm != "bpe":
        pytest.skip("only BPE has dropout")
    options = {"dropout": dropout, "seed": 3} if dropout else {}
    texts = random_texts()
    rows = tokenizer.encode(texts, **options)
    for text, ids in zip(texts, rows, strict=True):
        pieces = [tokenizer.id_to_token(i) for i in ids]
        assert {s: pieces.count(s) for s in SYMBOLS} == oracle_count(text), (text, pieces)
        assert tokenizer.unknown_token_id not in ids
    assert tokenizer.decode(rows) == texts
    assert sum(sum(oracle_count(text).values()) for text in texts) > 200


def test_symbols_live_on_in_files_and_other_processes(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for other in (Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert other.symbols == tuple(SYMBOLS)
        assert other.encode(TEXTS + random_texts(9)) == tokenizer.encode(TEXTS + random_texts(9))


def test_without_symbols_nothing_is_new():
    """The same model as before there were symbols, byte for byte; a tag falls apart."""
    plain, empty = Tokenizer.train(TEXTS, 400), Tokenizer.train(TEXTS, 400, symbols=[])
    assert plain.fingerprint() == empty.fingerprint() and plain.symbols == ()
    assert len(plain.encode("<2de>")) > 2


def test_a_prefix_is_put_before_sources_alone(tokenizer, tmp_path):
    plain = pickle.loads(pickle.dumps(tokenizer))
    other = pickle.loads(pickle.dumps(tokenizer))
    other.source_prefix = " <bt>  <2de> "
    wanted = plain.encode([f"<bt> <2de> {text}" for text in TEXTS])
    assert other.encode(TEXTS) == wanted and other.encode(TEXTS[0]) == wanted[0]
    assert other.encode(TEXTS, side="target") == plain.encode(TEXTS)
    assert other.encode("") == [] and other.encode(" ") == []
    assert other.fingerprint() != plain.fingerprint()
    other.save(tmp_path / "one")
    again = Tokenizer.load(tmp_path / "one")
    assert again.source_prefix == "<bt> <2de>" and again.fingerprint() == other.fingerprint()
    assert pickle.loads(pickle.dumps(other)).encode(TEXTS) == wanted
    with pytest.raises(ValueError, match="holds another tokenizer"):
        plain.save(tmp_path / "one")
    other.source_prefix = None
    assert other.fingerprint() == plain.fingerprint()

    again.source_prefix = "<2de>"
    text = ParallelText("pairs", [(TEXTS[0], TEXTS[1]), ("", "x"), ("The fox", "Der Fuchs")])
    store = TokenStore.build(tmp_path / "store", text, again, verbose=False)
    assert len(store) == 2  # An empty source stays empty.
    end = [again.end_token_id]
    np.testing.assert_array_equal(store.source(1), plain.encode("<2de> The fox") + end)
    np.testing.assert_array_equal(store.target(1), plain.encode("Der Fuchs") + end)


def test_a_prefix_is_normalised_as_the_text_behind_it(tokenizer):
    """It was typed on a Mac, or copied: no such letters are in the vocabulary."""
    other = pickle.loads(pickle.dumps(tokenizer))
    other.source_prefix = "\ufeff<2de> u\u0308b\u00ader:"
    assert other.source_prefix == "<2de> \u00fcber:"
    other.source_prefix = None
    again = Tokenizer(tokenizer.model, tokenizer.algorithm, source_prefix="<2de> u\u0308b\u00ader:")
    assert again.encode("fox") == other.encode("<2de> \u00fcber: fox")


@pytest.mark.parametrize("prefix", ["<2fr>", "<bt> <2fr>", ">>fra<<", "", " ", "\u200b", 3])
def test_a_tag_that_the_vocabulary_lacks_is_refused(tokenizer, prefix):
    other = pickle.loads(pickle.dumps(tokenizer))
    other.source_prefix = "<2de>"
    message = (
        "does not know.*It knows <2de>, <bt>" if str(prefix).strip(" \u200b3") else "source_prefix"
    )
    with pytest.raises(ValueError, match=message):
        other.source_prefix = prefix
    assert other.source_prefix == "<2de>"
    with pytest.raises(ValueError, match="It knows no tags"):
        check_tags("symbols", ["<2de>"], Tokenizer.train(TEXTS, 400))


@pytest.mark.parametrize(
    "symbol",
    ["2de", "<>", "<->", "<2 de>", "<a,b>", "<pad>", "</s>", "<0x41>", "<a<b>", "<a\u00ad>", "", 3],
)
def test_what_is_no_symbol_is_refused(symbol):
    with pytest.raises(ValueError, match="`symbols` must be"):
        Tokenizer.train(TEXTS, 400, symbols=["<2de>", symbol])


LINES = [
    f"fox {i}\t{word} {i}\t{language}"
    for i in range(12)
    for word, language in (("Fuchs", "de"), ("renard", "fr"))
]


def test_a_tsv_with_languages(tmp_path):
    file, held_out = tmp_path / "all.tsv", tmp_path / "dev.tsv"
    file.write_text("\n".join([*LINES[:9], "", *LINES[9:], ""]), "utf-8")
    held_out.write_text("owl\thibou\tfr\n", "utf-8")
    corpus = corpus_from_tsv(file, held_out, test_size=0, has_languages=True)
    assert corpus.symbols == ("<2de>", "<2fr>") and "1 blank lines" in corpus.description
    wanted = [
        (f"<2{language}> {source}", target)
        for source, target, language in (line.split("\t") for line in LINES)
    ]
    assert list(corpus.train) == wanted
    assert list(corpus.validation) == [("<2fr> owl", "hibou")]

    held_out.write_text("owl\tlechuza\tes\n", "utf-8")
    with pytest.raises(ValueError, match="`validation` has the tags <2es>, which `train` lacks"):
        corpus_from_tsv(file, held_out, test_size=0, has_languages=True)
    for line, message in (("a\tb", "expected two tabs.*Received 1"), ("a\tb\t2!", "a language")):
        file.write_text("\n".join([*LINES, line, ""]), "utf-8")
        with pytest.raises(ValueError, match=f"line {len(LINES) + 1}: .*{message}"):
            corpus_from_tsv(file, test_size=1, has_languages=True)
    with pytest.raises(ValueError, match="line 1: expected one tab"):
        corpus_from_tsv(file, test_size=1)
