"""A parser from end to end on a grammar of a few rules: learned, written, and resumed."""

import dataclasses
import json
import pickle  # noqa: TID251

import common
import constituency_parsing
import pytest
from constituency_parsing import difference, train_and_parse
from nltk import Tree
from parsing.baselines import WordTags
from parsing.bracketing import bracketing_counts
from parsing.parser import NUM_SPECIAL, Parse, Parser, TreeText
from parsing.run import ParserRun
from parsing.toy import QUICK, toy_treebank
from parsing.treebanks import treebank_from_files
from parsing.trees import read_trees, write_tree

from keras_attention import Tokenizer
from keras_attention.models import Transformer

pytestmark = pytest.mark.backends("torch")
CONFIG = dataclasses.replace(QUICK, steps=500)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Sentences of the grammar; none of the test part is in the training part."""
    sizes = {"train": 700, "validation": 20, "test": 50}
    return toy_treebank(tmp_path_factory.mktemp("toy"), sizes)


def test_a_grammar_is_learned_and_a_finished_run_goes_on(bank, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    report = train_and_parse(bank, CONFIG, folder, "words", ["constrained", "repaired"], 25)
    constrained = report["systems"]["constrained"]
    assert constrained["f1_of_all"] > 97
    assert constrained["malformed"] == constrained["failed"] == 0
    assert {"repaired", "failed"} <= set(report["systems"])
    for name in ("report.txt", "report.md", "report.json", "f1_by_length.png", "f1_by_length.svg"):
        assert (folder / name).stat().st_size > 100, name
    assert "91.3" in (folder / "report.txt").read_text()
    assert json.loads((folder / "report.json").read_text())["systems"]["constrained"] == constrained

    # Again, with one system more: nothing is trained, and nobody parses but that one.
    monkeypatch.setattr(Parser, "__call__", None)
    systems = ["constrained", "right_branching", "pcfg"]
    more = train_and_parse(bank, CONFIG, folder, "words", systems, 25)
    assert more["systems"]["constrained"] == constrained
    branching = more["systems"]["right_branching"]
    assert branching["f1_of_all"] < 60 and branching["resolved"]
    assert more["systems"]["pcfg"]["f1"] > 60


def test_silver_trees_are_written_and_trained_on(tmp_path, monkeypatch):
    """All of `--quick`: a parser from few trees, what it is surest of, and a second one from both."""
    seen = []
    parse = ParserRun.parse
    monkeypatch.setattr(
        ParserRun, "parse", lambda *asked: seen.append((asked[1], parse(*asked))) or seen[-1][1]
    )
    options = ["--quick", "--output-dir", str(tmp_path / "out")]
    common.run(constituency_parsing.main, constituency_parsing.parser(), arguments=options)
    text = (tmp_path / "out/toy/text.txt").read_text().splitlines()
    assert len(text) == 200
    [silver] = [parses for _, parses in seen if len(parses) == len(text)]
    assert [" ".join(one.tree.leaves()) for one in silver] == text
    # The better half is kept, in the order of the text.
    middle = sorted(one.score for one in silver)[100]
    assert -5 < middle < 0
    written = (tmp_path / "out/gold/silver.mrg").read_text()
    kept = [one.tree for one in silver if one.score >= middle]
    assert list(read_trees(written)) == kept and len(kept) == 100
    for folder, parts in (("gold", set()), ("silver", {"gold", "silver"})):
        report = json.loads((tmp_path / "out" / folder / "report.json").read_text())
        assert report["systems"]["constrained"]["f1_of_all"] > 70, folder
        settings = json.loads((tmp_path / "out" / folder / "config.json").read_text())
        assert settings.get("parts", {}).keys() == parts


def test_silver_trees_are_a_part_of_the_training_alone(bank, tmp_path):
    file = tmp_path / "silver.mrg"
    file.write_text("(S (VP (VB unheard)))\n(S (VP (VB stay)))\n")
    corpus = bank.with_silver([file]).corpus("words")
    sizes = {name: len(text) for name, text in (corpus.splits | corpus.parts).items()}
    assert sizes == {"train": 702, "validation": 20, "test": 50, "gold": 700, "silver": 2}
    assert list(corpus.train)[-1] == ("stay", "(S (VP stay )VP )S")
    text = TreeText.train(corpus, 400, WordTags(bank.train), "words")
    cut = text.corpus(corpus, tmp_path / "vocabulary.txt", 400)
    assert [len(part) for part in cut.parts.values()] == [700, 2] and len(cut.train) == 702
    assert list(cut.parts["silver"])[0] == (
        text.cut(["unheard"]),
        f"(S (VP {text.cut(['unheard'])} )VP )S",
    )


def untrained(bank, leaves, size, folder):
    """The text of trees, and parsers that learned nothing: constrained, and not."""
    text = TreeText.train(bank.corpus(leaves), 400, WordTags(bank.train), leaves)
    cut = text.corpus(bank.corpus(leaves), folder / "vocabulary.txt", size)
    tokenizer = Tokenizer.from_vocabulary(cut.vocabulary)
    model = Transformer(
        tokenizer.vocabulary_size, num_layers=1, hidden_dim=16, intermediate_dim=24, num_heads=2
    )
    options = {"beam_size": 2, "max_extra_length": 9}
    return text, {
        constrained: Parser(model, tokenizer, text, constrained=constrained, **options)
        for constrained in (True, False)
    }


@pytest.mark.parametrize("leaves", ["XX", "words"])
def test_an_untrained_parser_still_writes_trees(bank, leaves, tmp_path):
    """Most pieces are not in so small a vocabulary."""
    _, parsers = untrained(bank, leaves, 20, tmp_path)
    assert len((tmp_path / "vocabulary.txt").read_text().split()) == 20 - NUM_SPECIAL
    golds = list(bank.test)[:3]
    sentences = [gold.leaves() for gold in golds]
    for constrained, parser in parsers.items():
        again = pickle.loads(pickle.dumps(parser))
        assert again(sentences) == parser(sentences)
        for words, gold, parse in zip(sentences, golds, parser(sentences), strict=True):
            assert parse.tree.leaves() == words
            assert parse.is_well_formed or not constrained
            # The tags are the words' usual ones, so that the same words count.
            assert bracketing_counts(gold, parse.tree).status == "valid"
    with pytest.raises(ValueError, match=r"sentences\[1\]=\[\]"):
        parser([["a"], []])


def test_words_are_cut_into_as_many_pieces_that_end_one(bank, tmp_path):
    text = TreeText.train(bank.corpus(), 330, WordTags(bank.train))
    words = ["dogcatcher", "unknown", "x-ray", "日本", "."]
    pieces = text.cut(words).split()
    assert sum(not piece.endswith("@@") for piece in pieces) == len(words)
    assert "".join(p.removesuffix("@@") for p in pieces[: pieces.index(".")]).startswith(
        "dogcatcher"
    )
    theirs = tmp_path / "theirs" / "symbols.json"
    theirs.parent.mkdir()
    theirs.write_text('{"phrases": ["theirs"]}')
    with pytest.raises(ValueError, match="symbols.json' is damaged.*another program wrote it"):
        text.save(theirs.parent)
    assert theirs.read_text() == '{"phrases": ["theirs"]}' and len(list(tmp_path.iterdir())) == 1
    text.word_tags.of_word["("] = "-LRB-"
    text.save(tmp_path)
    assert json.loads((tmp_path / "symbols.json").read_text())["word_tags"]["-LRB-"] == "-LRB-"
    again = TreeText.load(tmp_path)
    assert again.word_tags.of_word == text.word_tags.of_word
    assert again.cut(words) == text.cut(words)
    assert (again.phrases, again.tags) == (("ADVP", "NP", "PP", "S", "VP"),
                                           (".", "DT", "IN", "NN", "RB", "VBD"))  # fmt: skip
    assert again.word_tags(["often", "."]) == ["RB", "."]


def test_the_words_of_a_tree_are_those_of_the_sentence(bank, tmp_path):
    """Pieces are known, unknown at the end, the beginning or altogether."""
    text = TreeText.train(bank.corpus("words"), 330, WordTags(bank.train), "words")
    words = ["unhappily", "the", "catdog", "x"]
    cut = [text.cut([word]).split() for word in words]
    assert len(cut[0]) > 2 and len(cut[2]) > 1
    every = dict.fromkeys(piece for pieces in cut for piece in pieces)
    target = (
        f"(S (NP {' '.join(cut[0])} )NP {' '.join(cut[1])} (NP {' '.join(cut[2] + cut[3])} )NP )S"
    )
    for unknown in ({}, {cut[0][0]}, {cut[0][-1]}, {cut[0][1], cut[2][-1]}, set(every)):
        file = tmp_path / "vocabulary.txt"
        entries = ["(S", ")S", "(NP", ")NP", *(piece for piece in every if piece not in unknown)]
        file.write_text("".join(f"{entry}\n" for entry in entries))
        tokenizer = Tokenizer.from_vocabulary(file)
        [output] = tokenizer.decode(tokenizer.encode([target]))
        assert text.symbols(words, output, tokenizer) == (
            "(S (NP unhappily )NP the (NP catdog x )NP )S".split()
        )
    # The last tokenizer knows nothing: only the number of pieces tells.
    wrong = output.replace(")NP", "⁇ )NP", 1)
    assert text.symbols(words, wrong, tokenizer) == wrong.split()
    inside = output.replace("(NP ⁇", "(NP ⁇ (NP )NP", 1)
    assert text.symbols(words, inside, tokenizer) == inside.split()


@pytest.mark.parametrize("leaves", ["tags", "words"])
def test_any_word_is_parsed_written_and_read(bank, leaves, tmp_path):
    """The model sees brackets by the names that they have in treebanks; the tree has the words as given."""
    text, parsers = untrained(bank, leaves, 60, tmp_path)
    words = ["t(est)", "(", "the", "-LRB-", ")S", "New York", "1/2", "\\"]
    assert text.cut(["("]) == text.cut(["-LRB-"]) != text.cut([")"])
    assert not set(text.cut(words)) & set("()")
    for constrained, parser in parsers.items():
        [parse] = parser([words])
        assert parse.tree.leaves() == words
        assert parse.is_well_formed or not constrained
        assert list(read_trees(write_tree(parse.tree))) == [parse.tree]
    with pytest.raises(ValueError, match="at least one character"):
        parser([["the", ""]])


def test_parses_are_read_from_their_file(bank, tmp_path, monkeypatch):
    run = ParserRun(bank.corpus(), bank, CONFIG, tmp_path / "run", "tags")
    run.training = {"updates": 7}
    run.folder.path.mkdir()
    [gold] = read_trees("(NP (-LRB- -LRB-) (NN t-LRB-est-RRB-) (CD 1\\/2))")
    parses = [Parse(gold, False)]
    monkeypatch.setattr(run, "parse", lambda system, sentences: parses)
    found = run.parses("made_up", [gold])
    written = json.loads((run.folder.path / "parses/made_up.json").read_text())
    assert written["of"]["sentences"] == [["-LRB-", "t-LRB-est-RRB-", "1\\/2"]]
    assert found["parses"] == parses
    monkeypatch.setattr(run, "parse", None)
    assert run.parses("made_up", [gold]) == found


def test_a_difference_is_resolved_where_chance_cannot_make_it(bank):
    golds = list(bank.test)
    flat = [Tree("S", [Tree(tag, [word]) for word, tag in gold.pos()]) for gold in golds]
    right = [bracketing_counts(gold, gold) for gold in golds]
    wrong = [bracketing_counts(gold, tree) for gold, tree in zip(golds, flat, strict=True)]
    found = difference(right, wrong)
    assert found["resolved"] and found["interval"][0] < found["difference"] < found["interval"][1]
    mixed = [a if i % 2 else b for i, (a, b) in enumerate(zip(right, wrong, strict=True))]
    assert not difference(mixed, mixed)["resolved"]


def test_a_broken_tree_leaves_nothing_behind(bank, tmp_path):
    file = tmp_path / "bad.mrg"
    file.write_text("( (S (NN a)) )\n( (S (NN b) )\n")
    broken = treebank_from_files([file], [file], [file])
    with pytest.raises(ValueError, match="bad.mrg', line 2"):
        train_and_parse(broken, CONFIG, tmp_path / "run", "tags", ["constrained"])
    assert not (tmp_path / "run").exists()


def test_a_refused_vocabulary_leaves_no_folder_that_blocks_the_mended_command(bank, tmp_path):
    config = dataclasses.replace(CONFIG, vocabulary_size=60)
    with pytest.raises(
        ValueError, match=r"`vocabulary_size` \(60\) has room for 41 pieces of words"
    ):
        train_and_parse(bank, config, tmp_path / "run", "tags", ["constrained"])
    assert list(tmp_path.iterdir()) == []
