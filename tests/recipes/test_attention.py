"""Which pairs a run logs the attention of."""

import types

import pytest

from keras_attention import SummaryWriter, Tokenizer, TokenStore, corpus_from_files, load_corpus
from keras_attention.callbacks.attention_log import MOST_TOKENS
from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.recipes import attention
from keras_attention.recipes.attention import attention_log, middling_pairs

pytestmark = pytest.mark.backends("torch")

# As a corpus and a tokenizer that know nothing but words.
WORDS = types.SimpleNamespace(encode=lambda texts: [text.split() for text in texts])


def corpus_of(*pairs):
    return types.SimpleNamespace(validation=pairs, synthetic=False)


def words(count):
    return " ".join(f"w{i}" for i in range(count))


def the_log(writer, tokenizer, corpus, store):
    translator = types.SimpleNamespace(translate=len, beam_size=4)
    (log,) = attention_log(tokenizer, corpus, store, writer, translator, None)
    return log


def test_pairs_nearest_to_ten_words_come_first_until_there_are_enough_tokens():
    pairs = [(words(n), "x") for n in (3, 40, 12, 10, 30, 7, 25)]
    chosen = [len(source.split()) for source, _ in middling_pairs(corpus_of(*pairs), WORDS)]
    assert chosen == [10, 12, 7, 3, 25, 30, 40]
    many = [(f"{words(9)} s{i}", "x") for i in range(50)]
    assert len(middling_pairs(corpus_of(*many), WORDS)) == 20  # of ten tokens each


def test_pairs_that_are_empty_or_too_long_are_left_out():
    pairs = [("", "x"), ("x", " "), (words(MOST_TOKENS), "x"), ("x", words(MOST_TOKENS))]
    assert middling_pairs(corpus_of(*pairs), WORDS) == []
    kept = ("x", words(MOST_TOKENS - 1))
    assert middling_pairs(corpus_of(*pairs, kept), WORDS) == [kept]


def test_each_vocabulary_has_ranks_of_its_own(tmp_path):
    """A token is found by its id in the vocabulary of its side, and short on the side that it is."""
    pieces = [["<pad>", "</s>", "<unk>", "a", "b"], ["<pad>", "</s>", "<unk>", "x", "a", "z", "y"]]
    ids = {"pad_token_id": 0, "start_token_id": 0, "end_token_id": 1}

    def made(sides):
        model = ImportedPieces.model(sides, [None, None], ids, [2, 2])
        return Tokenizer(model, "imported")

    (tmp_path / "a").write_text("a b b\nb\n")
    (tmp_path / "b").write_text("z z y\nx z y\n")
    files = (tmp_path / "a", tmp_path / "b")
    for file, line in zip(files, ("a a", "y y"), strict=True):
        (tmp_path / f"{file.name}.dev").write_text(f"{line}\n")
    corpus = corpus_from_files(files, [tmp_path / "a.dev", tmp_path / "b.dev"], test_size=0)
    with SummaryWriter(tmp_path / "events") as writer:
        for sides, expected in (
            (pieces, {"source": [3, 1, 4, 2, 0], "target": [4, 1, 5, 3, 6, 0, 2]}),
            (pieces[1:], [6, 0, 1, 4, 5, 2, 3]),
        ):
            tokenizer = made(sides)
            store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer)
            log = the_log(writer, tokenizer, corpus, store)
            found = log.token_ranks
            if isinstance(expected, dict):
                assert {side: ranks.tolist() for side, ranks in found.items()} == expected
            else:
                assert found.tolist() == expected


def test_the_demo_is_logged_with_its_true_alignments(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "COUNTED_PAIRS", 300)
    corpus = load_corpus("demo")
    texts = [text for pair in list(corpus.train)[:500] for text in pair]
    tokenizer = Tokenizer.train(texts, vocabulary_size=600)
    store = TokenStore.build(tmp_path / "store", corpus.validation, tokenizer)
    with SummaryWriter(tmp_path / "events") as writer:
        log = the_log(writer, tokenizer, corpus, store)
    true = [[[*link] for link in corpus.alignments[pair]] for pair in log.pairs]
    assert [[[*link] for link in links] for links in log.alignments] == true
    assert len(log.pairs) > log.shown == 5
    assert sum(len(tokenizer.encode(source)) for source, _ in log.pairs) > 150
    end = tokenizer.end_token_id
    assert log.token_ranks[end] < 5  # twice in each pair
    assert sorted(log.token_ranks) == list(range(tokenizer.vocabulary_size))
