"""Runs with tags: before all sources, or one for each language; what translates with them later."""

import dataclasses
import json
import shutil

import pytest

from keras_attention import Tokenizer, Translator, corpus_from_files
from keras_attention.cli.main import main
from keras_attention.cli.train import run
from keras_attention.recipes import plan_training, train_translation
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.start import tokenizer_between
from tests.recipes.small_runs import SMALL, small_corpus, write_files

pytestmark = pytest.mark.backends("torch")

TINY = dataclasses.replace(SMALL, steps=3, bleu_every=99, attention_log=False)


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    """A run on a file with a column for the language, by the command."""
    folder = tmp_path_factory.mktemp("runs")
    files = write_files(folder, "own", 0, 50)
    source, target = (file.read_text("utf-8").splitlines() for file in files)
    rows = [f"{s}\t{t}\tde" for s, t in zip(source, target, strict=True)]
    rows += [f"{t}\t{s}\ten" for s, t in zip(source, target, strict=True)]
    (folder / "own.tsv").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    arguments = ["--tsv", folder / "own.tsv", "--tsv-languages", "--symbols", "<bt>", "--steps", 3]
    arguments += ["--output-dir", folder / "run"]
    report = run("Trains.", arguments=list(map(str, arguments)), recipes={"files": TINY})
    return folder, report


def translated(run, text, capsys, *options, tmp_path):
    (tmp_path / "in").write_text(f"{text}\n", "utf-8")
    main(["translate", str(run), "--input", str(tmp_path / "in"), "--json", *options])
    captured = capsys.readouterr()
    return json.loads(captured.out.splitlines()[-1])["translations"], captured.err


def test_each_language_has_its_tag(multilingual, tmp_path, capsys, refused_by):
    folder, report = multilingual
    tokenizer = Tokenizer.load(folder / "run" / "tokenizer")
    assert tokenizer.symbols == ("<2de>", "<2en>", "<bt>") and tokenizer.source_prefix is None
    assert report["config"]["symbols"] == ["<bt>"] and report["vocabulary_size"] == 360
    translator = Translator.from_run(folder / "run")
    text = "The dog sleeps."
    wanted = translator.translate(f"<2en> {text}")[0]
    assert translator.translate(text, target_language="en")[0].token_ids == wanted.token_ids
    found, said = translated(
        folder / "run", text, capsys, "--source-prefix", "<2en>", tmp_path=tmp_path
    )
    assert found[0]["score"] == pytest.approx(wanted.score, abs=1e-4)
    assert "Each line gets the prefix '<2en>'" in said
    other, said = translated(folder / "run", text, capsys, tmp_path=tmp_path)
    assert abs(other[0]["score"] - wanted.score) > 1e-3
    assert "trained with the tags <2de>, <2en>. Begin each line" in said
    assert "'<2fr>', which the vocabulary does not know" in refused_by(
        translated, folder / "run", text, capsys, "--source-prefix", "<2fr>", tmp_path=tmp_path
    )


def test_the_prefix_of_a_run_is_in_its_text_and_its_translator(tmp_path, capsys):
    """The oracle: a run whose files have the tag in every source."""
    config = dataclasses.replace(TINY, source_prefix="<2de>")
    corpus = small_corpus(tmp_path)
    report = train_translation(corpus, config, tmp_path / "run")
    for file in tmp_path.glob("*.en"):
        lines = file.read_text("utf-8").splitlines()
        file.write_text("".join(f"<2de> {line}\n" for line in lines), "utf-8")
    names = ("train", "validation", "test")
    tagged = corpus_from_files(
        **{name: (tmp_path / f"{name}.en", tmp_path / f"{name}.de") for name in names}
    )
    other = train_translation(
        tagged, dataclasses.replace(TINY, symbols=["<2de>"]), tmp_path / "tagged"
    )
    scores = [r["validation_perplexity"] for r in (report, other)]
    assert scores[0] == scores[1]
    assert report["test"]["bleu"] == other["test"]["bleu"]
    text = list(corpus.test.sources())[0].removeprefix("<2de> ")
    best = [
        Translator.from_run(tmp_path / name).translate(each)[0].score
        for name, each in (("run", text), ("tagged", f"<2de> {text}"))
    ]
    assert best[0] == best[1]
    found, said = translated(tmp_path / "run", text, capsys, tmp_path=tmp_path)
    assert found[0]["score"] == pytest.approx(best[0], abs=1e-4) and "prefix '<2de>'" in said
    found, _ = translated(
        tmp_path / "run", text, capsys, "--source-prefix", "none", tmp_path=tmp_path
    )
    assert abs(found[0]["score"] - best[0]) > 1e-4

    # Another prefix is another run; a fine-tuned one knows the tags of the first.
    with pytest.raises(ValueError, match="source_prefix: '<2de>' there, None asked for"):
        train_translation(corpus, TINY, tmp_path / "run")
    further = {"start_from": str(tmp_path / "run"), "model_arguments": {}}
    with pytest.raises(ValueError, match="'<2fr>', which the vocabulary does not know.*<2de>"):
        Resolved(dataclasses.replace(TINY, **further, source_prefix="<2fr>")).check_model()
    tokenizer = Resolved(dataclasses.replace(TINY, **further)).tokenizer(corpus, tmp_path / "new")
    assert tokenizer.source_prefix == "<2de>"


def test_tags_and_pretrained_models_have_plans_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "cache"))
    corpus = small_corpus(tmp_path)
    plain = plan_training(corpus, TINY, try_longest=False)
    tagged = plan_training(
        corpus, dataclasses.replace(TINY, source_prefix="<2de>"), try_longest=False
    )
    assert tagged.source_tokens > plain.source_tokens
    tuned = dataclasses.replace(TINY, start_from="demo_en_de", model_arguments={})
    assert plan_training(corpus, tuned, try_longest=False).vocabulary_size == 2000
    assert len(list((tmp_path / "cache" / "plans").iterdir())) == 3
    shutil.rmtree(tmp_path / "cache")


def test_a_start_takes_the_tag_of_its_corpus(multilingual, tmp_path):
    """But before texts with tags of their own it has none: they would have two."""
    folder, _ = multilingual
    tokenizer = Tokenizer.load(folder / "run" / "tokenizer")
    corpus = small_corpus(tmp_path)
    found = {
        (target, prefix, symbols): tokenizer_between(
            tokenizer.in_languages(target=prefix),
            dataclasses.replace(corpus, target_language=target, symbols=symbols),
        ).source_prefix
        for target in ("de", "de_AT", "fr")
        for prefix in (None, "en")
        for symbols in ((), ("<2de>",))
    }
    assert found == {
        key: None if key[2] else {"fr": key[1] and "<2en>"}.get(key[0], "<2de>") for key in found
    }
    tokenizer.source_prefix = "<bt>"  # names no language
    assert tokenizer_between(tokenizer, corpus).source_prefix == "<bt>"
