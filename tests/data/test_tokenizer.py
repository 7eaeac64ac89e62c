"""Tokenizer: round trips, determinism, files; both algorithms against oracles."""

import io
import os
import pickle  # noqa: TID251
import random
import sys
import unicodedata

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer
from keras_attention.data.normalization import normalize
from keras_attention.data.word_pieces import join_words, split_words
from keras_attention.utils.files import OccupiedPath

pytestmark = pytest.mark.backends("tensorflow")

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "The dog barks, and the fox jumps quickly away from the dogs.",
    "Die Hündin bellt, weil der Fuchs größer ist als ein Hündchen.",
    "Which fox is quicker: the brown one or the white one?",
    "Welcher Fuchs ist schneller: der braune oder der weiße?",
]
HARD_TEXTS = [
    "",
    "unbekannt: 中文, ελληνικά, 😀👩‍👩‍👧",
    "<pad> </s> <unk> <0x41> ## ⁇",
    "nul \x00 and \x07 bell",
    "½ ² … ﬁ “Anführung” ‚einfach‘ – —",
    "x",
    "___ !!! ,,,",
]


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(TEXTS * 3, vocabulary_size=400)


@pytest.fixture(scope="module")
def word_pieces():
    pieces = ["<pad>", "</s>", "<unk>", "the", "f", "x", ", ", ".", "do"]
    inner = ["o", "x", "g", "s", "gs", "d"]
    return Tokenizer("\n".join(pieces + ["\u2581" + p for p in inner]).encode(), "wordpiece")


class TestNormalize:
    @pytest.mark.parametrize(
        "text, expected",
        [
            ("  two\t tabs\r\nand\u00a0lines \u2028", "two tabs and lines"),
            ("u\u0308ber", "\u00fcber"),
            ("½ ² … ﬁ ＡＢ", "½ ² … ﬁ ＡＢ"),
            ("GROSS groß", "GROSS groß"),
            ("a\u2581b", "a b"),
            ("zero\u200bwidth", "zerowidth"),
            ("\ufeffDo\u00adnau\u2060ufer \u200b", "Donauufer"),
            ("nul\x00 bell\x07 delete\x7f", "nul bell delete"),
            ("a\u200b\u0308", "ä"),  # an accent reaches its letter
            ("\u061c\u200fשלום\u200e \u202bא\u202c \u2067ב\u2069", "שלום א ב"),
            ("Windows\x92", "Windows\x92"),
            ("\n\t ", ""),
        ],
    )
    def test_cases(self, text, expected):
        assert normalize(text) == expected

    def test_is_idempotent(self):
        for text in HARD_TEXTS:
            assert normalize(normalize(text)) == normalize(text)

    @pytest.mark.parametrize(
        "text",
        [
            "👩\u200d👩\u200d👧 ❤\ufe0f",
            "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England
            "می\u200cخواهم",  # Persian: without the non-joiner, other forms of the letters
            "क्\u200dष क्\u200cष",  # Devanagari: two forms of one cluster
            "ᠭ\u180b a\u180eb 葛\U000e0100",  # variants of letters
            "f\u2061(x)",
        ],
    )
    def test_what_decides_the_reading_stays(self, text):
        assert normalize(text) == unicodedata.normalize("NFC", text)

    def test_what_goes_is_invisible_for_unicode_too(self):
        """Categories of Unicode's own table: format characters and controls, nothing that is seen."""
        gone = [c for c in map(chr, range(sys.maxunicode)) if normalize(f"a{c}b") == "ab"]
        assert {unicodedata.category(c) for c in gone} == {"Cf", "Cc"}
        assert not {c for c in gone if c.isspace()} and len(gone) == 46


class TestBytePairEncoding:
    def test_special_ids(self, bpe):
        assert (bpe.pad_token_id, bpe.end_token_id, bpe.unknown_token_id) == (0, 1, 2)
        assert bpe.start_token_id == bpe.pad_token_id

    def test_round_trip_of_one_text_and_of_many(self, bpe):
        generator = random.Random(7)
        points = [p for p in range(1, 0x11000) if not 0xD800 <= p < 0xE000]
        texts = ["".join(map(chr, generator.choices(points, k=17))) for _ in range(300)]
        texts += TEXTS + HARD_TEXTS
        rows = bpe.encode(texts)
        assert bpe.decode(rows) == [normalize(text) for text in texts]
        assert all(3 <= token_id < bpe.vocabulary_size for ids in rows for token_id in ids)
        assert [bpe.encode(text) for text in texts] == bpe.encode(tuple(texts)) == rows
        assert bpe.encode([]) == []

    def test_merges_like_the_algorithm(self, bpe):
        """Sennrich et al. (2016): merge the pair learned first, until no pair was learned."""
        rank = {bpe.id_to_token(i): i for i in range(3 + 256, bpe.vocabulary_size)}
        characters = {piece for piece in rank if len(piece) == 1}
        for text in TEXTS + ["The quickest foxes overjump", "Hundehütte schnell weg"]:
            expected = []
            for word in text.split():
                parts = list("▁" + word)
                assert characters.issuperset(parts)
                while True:
                    pairs = [a + b for a, b in zip(parts, parts[1:], strict=False)]
                    best = min(pairs, key=lambda p: rank.get(p, 10**9), default=None)
                    if best not in rank:
                        break
                    at = pairs.index(best)
                    parts[at : at + 2] = [best]
                expected += parts
            assert bpe.tokens(text) == expected

    def test_vocabulary_size_is_a_wish(self):
        assert Tokenizer.train(TEXTS, vocabulary_size=333).vocabulary_size == 333
        with pytest.warns(UserWarning, match="too few for a vocabulary of 5,000 ids: it has 26"):
            small = Tokenizer.train(["ab"] * 4, vocabulary_size=5000)
        assert 3 + 256 + 2 < small.vocabulary_size < 300
        assert small.decode(small.encode("abba")) == "abba"

    def test_sample_of_sentences(self):
        signs = [chr(0x4E00 + i) for i in range(400)]
        texts = [f"wort {sign}" for sign in signs]
        trained = Tokenizer.train(texts, 500, character_coverage=1.0, max_sentences=101)
        vocabulary = set(map(trained.id_to_token, range(trained.vocabulary_size)))
        seen = [i for i, sign in enumerate(signs) if sign in vocabulary]
        assert len(seen) == 101
        assert max(seen) > 150  # a sample, not the first ones
        with pytest.raises(ValueError, match="at least 101"):
            Tokenizer.train(texts, 500, max_sentences=100)

    def test_rare_characters_become_bytes(self):
        texts = ["aaaa bbbb"] * 300 + ["é"]
        covered = Tokenizer.train(texts, 300, character_coverage=1.0)
        rare = Tokenizer.train(texts, 300, character_coverage=0.999)
        assert covered.tokens("é")[-1].endswith("é")
        assert rare.tokens("é")[-2:] == ["<0xC3>", "<0xA9>"]
        assert rare.decode(rare.encode("aé")) == "aé"

    def test_long_lines_are_learned_from(self):
        """What SentencePiece learns if its limit is raised; by itself it would skip the lines."""
        import sentencepiece

        words = [f"wort{i % 97}ende{i % 13}" for i in range(900)]
        texts = [" ".join(words[i:] + words[:i]) for i in range(7)]
        assert min(len(text) for text in texts) > 8192
        texts += ["kurze Zeile"] * 2
        expected = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=reversed(texts), model_writer=expected, model_type="bpe",
            vocab_size=350, byte_fallback=True, normalization_rule_name="identity",
            max_sentence_length=10**6, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
            character_coverage=0.99999, minloglevel=2,
        )  # fmt: skip
        oracle = sentencepiece.SentencePieceProcessor(model_proto=expected.getvalue())
        found = Tokenizer.train(texts, vocabulary_size=350)
        assert found.vocabulary_size == oracle.vocab_size() == 350
        pieces = set(map(found.id_to_token, range(350)))
        assert pieces == {oracle.id_to_piece(i) for i in range(350)}
        assert found.decode(found.encode(texts)) == texts

    def test_a_word_of_any_length_is_learned_from(self):
        text = "".join(chr(0x4E00 + i % 7) for i in range(30_000))
        tokenizer = Tokenizer.train([text, f"{text} ab"], 300)
        assert len(tokenizer.encode(text)) < 8_000
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_no_letter_hides_its_line(self):
        """SentencePiece skips lines with U+2585, its own mark."""
        tokenizer = Tokenizer.train(["zebra \u2585\u2585 giraffe", "\u2585"] * 20, 300)
        assert tokenizer.tokens("zebra giraffe") == ["▁zebra", "▁giraffe"]
        assert tokenizer.decode(tokenizer.encode("zebra\u2585")) == "zebra\u2585"

    @pytest.mark.parametrize(
        "text, mostly",
        [
            ("中文翻译", True),
            ("fox 中文翻译", True),
            ("The quick fox: 中文", False),
            (": . ? ,", False),
            ("", False),
            ("😀", True),
            ("größer", False),
        ],
    )
    def test_knows_what_it_does_not_know(self, bpe, text, mostly):
        ids = [*bpe.encode(text), bpe.end_token_id]
        assert (sum(bpe.familiarity[i] for i in ids) < 0) is mostly


@pytest.mark.parametrize("dropout, seed", [(0.1, None), (1.0, 1), (-0.1, 1), (0.1, 1.5)])
def test_wrong_dropout_is_refused(bpe, word_pieces, dropout, seed):
    with pytest.raises(ValueError, match="`(dropout|seed)` must be"):
        bpe.encode(TEXTS, dropout=dropout, seed=seed)
    with pytest.raises(ValueError, match="'bpe' tokenizer"):
        word_pieces.encode("fox", dropout=0.1, seed=0)


class TestDecode:
    def test_stops_at_end_and_skips_padding(self, bpe):
        fox, dog = bpe.encode(["fox", "dog"])
        assert bpe.decode([0, *fox, 0, *dog, 1, *fox, 0]) == "fox dog"
        assert bpe.decode([1, *fox]) == ""

    def test_containers(self, bpe):
        rows = [row + [1] for row in bpe.encode(["the fox", "the dog"])]
        assert len(set(map(len, rows))) == 1
        expected = ["the fox", "the dog"]
        assert bpe.decode(rows) == bpe.decode(tuple(map(tuple, rows))) == expected
        assert bpe.decode(np.array(rows)) == bpe.decode(list(np.array(rows))) == expected
        assert bpe.decode(keras.ops.convert_to_tensor(rows)) == expected
        assert bpe.decode(keras.ops.convert_to_tensor(rows[1])) == expected[1]
        assert bpe.decode(np.array(rows[0])) == bpe.decode(list(np.array(rows[0]))) == expected[0]

    def test_empty(self, bpe):
        assert bpe.decode([]) == ""
        assert bpe.decode([[]]) == [""]
        assert bpe.decode(np.zeros((0, 5), int)) == []

    def test_is_one_clean_line(self, bpe):
        byte = {bpe.id_to_token(i): i for i in range(bpe.vocabulary_size)}
        assert bpe.decode([byte["<0x41>"], byte["<0x0A>"], byte["<0x42>"]]) == "A B"
        assert bpe.decode([byte["<0xC3>"], byte["<0x41>"]]) == "\ufffdA"

    @pytest.mark.parametrize("ids", [[5, -1], [400], [[3], [10**6]]])
    def test_ids_outside_the_vocabulary(self, bpe, ids):
        with pytest.raises(ValueError, match="must be from 0 to 399"):
            bpe.decode(ids)
        with pytest.raises(ValueError, match="must be from 0 to 399"):
            bpe.id_to_token(np.ravel(ids[-1])[-1])


class TestErrors:
    @pytest.mark.parametrize("texts", [[], ["", "  \n"]])
    def test_no_text(self, texts):
        with pytest.raises(ValueError, match="holds no text"):
            Tokenizer.train(texts, 300)

    @pytest.mark.parametrize(
        "bad, message",
        [
            (None, "must be a str"),
            (b"bytes", "must be a str"),
            ("\udcff", "holds half of a surrogate pair"),
        ],
    )
    def test_no_text_in_list(self, bpe, bad, message):
        with pytest.raises(ValueError, match=f"Text 1 {message}"):
            bpe.encode(["fine", bad])

    def test_vocabulary_too_small(self):
        with pytest.raises(ValueError, match="no vocabulary of 259 ids.*raise `vocabulary_size`"):
            Tokenizer.train(TEXTS, vocabulary_size=259)
        with pytest.raises(
            ValueError, match="from 4 to 1,000,000. Received: vocabulary_size=300.0"
        ):
            Tokenizer.train(TEXTS, vocabulary_size=300.0)
        with pytest.raises(ValueError, match="from 4 to 1,000,000"):  # It would take a minute.
            Tokenizer.train(TEXTS, vocabulary_size=10**9)

    def test_wrong_values_are_named(self, bpe):
        for arguments in (
            {"character_coverage": 2},
            {"algorithm": ["bpe"]},
            {"max_sentences": 1.5},
            *({"texts": texts} for texts in ("one text", b"bytes", None)),
        ):
            with pytest.raises(ValueError, match=f"`{next(iter(arguments))}` must be"):
                Tokenizer.train(**{"texts": TEXTS, **arguments})
        for ids in (None, "3 4", 3, {3: 4}.items, np.array(3)):
            with pytest.raises(ValueError, match="`ids` must be a sequence"):
                bpe.decode(ids)
        for ids in ([1.5], [[3, None]], [np.float32(3)], np.array([3.5])):
            with pytest.raises(ValueError, match="Token ids must be integers"):
                bpe.decode(ids)
        with pytest.raises(ValueError, match="`token_id` must be an int"):
            bpe.id_to_token("3")
        for call in (Tokenizer.load, bpe.save, Tokenizer.from_vocabulary):
            with pytest.raises(ValueError, match="`(folder|path)` must be a path"):
                call(None)
        with pytest.raises(ValueError, match="`model` must be bytes"):
            Tokenizer("text")
        for algorithm in ("unigram", "presegmented"):
            message = f"one of 'bpe', 'wordpiece'. Received: algorithm='{algorithm}'"
            with pytest.raises(ValueError, match=message):
                Tokenizer.train(TEXTS, algorithm=algorithm)


class TestFiles:
    def test_goes_to_files_and_to_another_process(self, bpe, word_pieces, tmp_path):
        (tmp_path / "list").write_text("ein\nWasch@@\nbär\n", "utf-8")
        presegmented = Tokenizer.from_vocabulary(tmp_path / "list")
        texts = [*TEXTS, "ein Wasch@@ bär"]
        for name, tokenizer in {"a/b": bpe, "c": word_pieces, "d": presegmented}.items():
            tokenizer.save(tmp_path / name)
            assert sorted(os.listdir(tmp_path / name)) == ["tokenizer.json", "tokenizer.model"]
            ids = tokenizer.encode(texts)
            loaded = Tokenizer.load(str(tmp_path / name))
            for again in (loaded, pickle.loads(pickle.dumps(tokenizer))):
                assert again.fingerprint() == tokenizer.fingerprint()
                assert again.algorithm == tokenizer.algorithm
                assert again.vocabulary_size == tokenizer.vocabulary_size
                assert again.encode(texts) == ids
                assert again.decode(ids) == tokenizer.decode(ids)

    def test_never_overwrites_another(self, bpe, tmp_path):
        other = Tokenizer.train(TEXTS, 300)
        bpe.save(tmp_path)
        bpe.save(tmp_path)
        with pytest.raises(ValueError, match="holds another tokenizer.*overwrite=True"):
            other.save(tmp_path)
        assert Tokenizer.load(tmp_path).fingerprint() == bpe.fingerprint()
        other.save(tmp_path, overwrite=True)
        assert Tokenizer.load(tmp_path).fingerprint() == other.fingerprint()

    @pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
    @pytest.mark.parametrize("beside", [[], ["notes"]])
    def test_a_file_of_its_own_that_is_missing_is_written_again(self, bpe, tmp_path, name, beside):
        """As a process leaves them that is killed in a folder with other files."""
        for other in beside:
            (tmp_path / other).write_text("mine")
        bpe.save(tmp_path)
        (tmp_path / name).unlink()
        assert Tokenizer.is_saved_in(tmp_path) == (name != "tokenizer.json")
        bpe.save(tmp_path)
        assert Tokenizer.is_saved_in(tmp_path)
        assert Tokenizer.load(tmp_path).fingerprint() == bpe.fingerprint()
        assert sorted(os.listdir(tmp_path)) == [*beside, "tokenizer.json", "tokenizer.model"]

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize(
        "theirs",
        [
            {"tokenizer.model": b"a SentencePiece model of their own"},
            {"tokenizer.json": b'{"version": "1.0", "model": {"type": "BPE"}}'},
            {"tokenizer.model": b"LLaMA", "tokenizer.json": b'{"version": "1.0"}'},
            {"tokenizer.json": b"no JSON"},
        ],
    )
    @pytest.mark.parametrize("beside", [{}, {"weights": b"1 2 3"}])
    def test_replaces_nothing_of_other_programs(self, bpe, tmp_path, theirs, beside, overwrite):
        for name, content in (theirs | beside).items():
            (tmp_path / name).write_bytes(content)
        with pytest.raises(OccupiedPath, match=f"{next(iter(theirs))}.*did not write.*move"):
            bpe.save(tmp_path, overwrite=overwrite)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == theirs | beside

    @pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
    def test_replaces_no_file_of_its_own_that_was_changed(self, bpe, tmp_path, name):
        bpe.save(tmp_path)
        changed = (tmp_path / name).read_bytes()[:-9] + b" changed}"
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(OccupiedPath, match=f"{name}.*was changed"):
            Tokenizer.train(TEXTS, 300).save(tmp_path, overwrite=True)
        assert (tmp_path / name).read_bytes() == changed

    @pytest.mark.parametrize("path", [".", "../here"])
    def test_into_the_current_folder(self, bpe, tmp_path, monkeypatch, path):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        bpe.save(path)
        Tokenizer.train(TEXTS, 300).save(path, overwrite=True)
        assert Tokenizer.load(tmp_path / "here").vocabulary_size == 300
        assert sorted(os.listdir()) == ["tokenizer.json", "tokenizer.model"]


class TestWordPieces:
    def test_longest_match_first(self, word_pieces):
        text = "the fox, the dogs."
        expected = ["the", "f", "##o", "##x", ", ", "the", "do", "##gs", "."]
        assert word_pieces.tokens(text) == expected
        assert word_pieces.decode(word_pieces.encode(text)) == text

    def test_unknown_word(self, word_pieces):
        for word in ("cat", "foxi", "dod\u0107"):
            assert word_pieces.encode(f"the {word}") == [3, word_pieces.unknown_token_id]
        assert word_pieces.decode(word_pieces.encode("the cat, fox")) == "the ⁇ , fox"

    def test_knows_what_it_does_not_know(self, word_pieces):
        texts = ["the fox, cat.", "cat, the mouse. cat"]
        known, unknown = word_pieces.encode(texts)
        assert sum(word_pieces.familiarity[i] for i in known) >= 0
        assert sum(word_pieces.familiarity[i] for i in unknown) < 0

    def test_any_ids_decode(self, word_pieces):
        ids = {word_pieces.id_to_token(i): i for i in range(word_pieces.vocabulary_size)}
        assert word_pieces.decode([ids["##gs"], ids["the"], ids["##s"], ids["x"]]) == "gs thes x"

    def test_words_join_again(self):
        generator = random.Random(3)
        alphabet = "aZß9 _.,#-\u0301" + "  " + "中é"
        for _ in range(500):
            text = normalize("".join(generator.choices(alphabet, k=13)))
            words = split_words(text)
            assert join_words(words) == text
            assert all(len({c.isalnum() for c in word}) == 1 for word in words)

    def test_model_is_checked(self):
        with pytest.raises(ValueError, match="not a list of word-pieces"):
            Tokenizer(b"a\nb\nc", "wordpiece")
        with pytest.raises(ValueError, match="not a list of word-pieces"):
            Tokenizer(b"\xff\xfe", "wordpiece")

    def test_words_that_the_vocabulary_cannot_hold_are_told(self):
        """TensorFlow Text takes the 1,000 most frequent characters."""
        pytest.importorskip("tensorflow_text")
        signs = [chr(0x4E00 + i) for i in range(1007)]
        texts = ["dog"] * 60 + [f"dog {sign}" for sign in signs]
        with pytest.warns(UserWarning, match="^10 of the 1,008 different words .*unknown token"):
            tokenizer = Tokenizer.train(texts, 4000, algorithm="wordpiece")
        lost = [sign for sign in signs if tokenizer.encode(sign) == [tokenizer.unknown_token_id]]
        assert len(lost) == 10

    def test_long_words_are_learned_from(self):
        """TensorFlow Text skips words of more than 50 letters, such as sentences without spaces."""
        pytest.importorskip("tensorflow_text")
        texts = ["猫坐在垫子上" * 20, "dog"] * 11
        tokenizer = Tokenizer.train(texts, 90, algorithm="wordpiece")
        assert tokenizer.decode(tokenizer.encode(texts)) == texts

    def test_training_learns_what_keras_hub_learns(self):
        pytest.importorskip("tensorflow_text")
        keras_hub = pytest.importorskip("keras_hub")
        tf = pytest.importorskip("tensorflow")
        words = tf.data.Dataset.from_tensors([w for text in TEXTS * 3 for w in split_words(text)])
        expected = keras_hub.tokenizers.compute_word_piece_vocabulary(
            words, 90, split=False, suffix_indicator="\u2581",
            reserved_tokens=["<pad>", "</s>", "<unk>"],
        )  # fmt: skip
        tokenizer = Tokenizer.train(TEXTS * 3, vocabulary_size=90, algorithm="wordpiece")
        got = [tokenizer.id_to_token(i).replace("##", "\u2581") for i in range(len(expected))]
        assert got == expected and tokenizer.vocabulary_size == len(expected) > 60
        assert tokenizer.decode(tokenizer.encode(TEXTS)) == TEXTS
        with pytest.raises(ValueError, match="holds no text"):
            Tokenizer.train([" "], 90, "wordpiece")

    def test_training_without_tensorflow_text(self, monkeypatch):
        trainer = "tensorflow_text.tools.wordpiece_vocab.wordpiece_tokenizer_learner_lib"
        monkeypatch.setitem(sys.modules, trainer, None)
        with pytest.raises(ImportError, match="pip install tensorflow tensorflow-text"):
            Tokenizer.train(TEXTS, 90, "wordpiece")


class TestGiven:
    """Text that is cut into subwords already."""

    @pytest.fixture
    def tokenizer(self, tmp_path):
        lines = ["<unk>", "<s>", "</s>", "der", "Wasch@@", "bär 17", "@-@", "@@", "", "der"]
        (tmp_path / "vocab").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return Tokenizer.from_vocabulary(tmp_path / "vocab")

    def test_ids_are_those_of_the_file_after_the_special_ones(self, tokenizer):
        assert tokenizer.vocabulary_size == 3 + 5
        assert tokenizer.encode(["der Wasch@@ bär", "der @-@ Fuchs", ""]) == [
            [3, 4, 5],
            [3, 6, 2],
            [],
        ]
        assert tokenizer.tokens("Wasch@@ bär") == ["Wasch@@", "bär"]

    def test_text_injects_no_control_tokens(self, tokenizer):
        assert tokenizer.encode("der </s> <pad> <unk> <s> bär") == [3, 2, 2, 2, 2, 5]

    def test_pieces_are_normalised_as_text_is(self, tmp_path):
        (tmp_path / "vocab").write_text("Do\u00adnau@@\nu\u0308fer\n\u200b\n", "utf-8")
        tokenizer = Tokenizer.from_vocabulary(tmp_path / "vocab")
        assert tokenizer.encode("Do\u00adnau@@ u\u0308fer") == [3, 4]
        assert tokenizer.decode([3, 4]) == "Donauüfer" and tokenizer.vocabulary_size == 5

    def test_words_come_back(self, tokenizer):
        rows = [[4, 5, 3, 1, 6], [4, 4, 5], [3, 6, 5], [2, 4], [0, 3]]
        expected = ["Waschbär der", "WaschWaschbär", "der @-@ bär", "⁇ Wasch", "der"]
        assert tokenizer.decode(rows) == expected

    def test_refused(self, tokenizer, tmp_path):
        (tmp_path / "empty").write_text("\n\n")
        with pytest.raises(ValueError, match="empty' holds no subword"):
            Tokenizer.from_vocabulary(tmp_path / "empty")
        for model in (b"a\nb", b"\xff"):
            with pytest.raises(ValueError, match="not a list of pieces"):
                Tokenizer(model, "presegmented")
