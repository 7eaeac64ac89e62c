"""The trained model in the package: by name, everywhere that a model is taken."""

import itertools
from pathlib import Path

import keras
import pytest

from keras_attention import Tokenizer, Transformer, Translator, corpus_bleu, load_corpus
from keras_attention.cli.main import main
from keras_attention.data.presets import load, preset_folder
from keras_attention.recipes.messages import corpus_text
from keras_attention.spec.presets import TRAINED
from tests.recipes.small_runs import write_files

NAME = "demo_en_de"
SENTENCES = ["The dog sleeps.", "The teachers stayed before they swam."]
TRANSLATIONS = ["Der Hund schläft.", "Die Lehrer sind geblieben, bevor sie geschwommen sind."]


def test_it_translates_on_every_backend():
    """By our reading of the files that another backend wrote, and by Keras'."""
    tokenizer = Tokenizer.from_preset(NAME)
    for model, engine in (
        (Transformer.from_preset(NAME), keras.backend.backend()),
        (keras.saving.load_model(preset_folder(NAME)), "plain"),
    ):
        assert Translator(model, tokenizer, engine=engine)(SENTENCES) == TRANSLATIONS


@pytest.mark.backends("tensorflow")
def test_it_translates_what_it_has_not_seen():
    """References of a grammar, in which the test combines words that training never does."""
    corpus = load_corpus("demo")
    sources, references = (
        list(itertools.islice(side, 100)) for side in (corpus.test.sources(), corpus.test.targets())
    )
    score = corpus_bleu(Translator.from_preset(NAME)(sources), references).score
    assert score > 90
    card = load(NAME).card
    assert abs(card["scores"]["bleu"] - score) < 5  # that of all 500
    assert card["corpus"]["sha256"]["train"] == corpus.train.fingerprint()


@pytest.mark.backends("tensorflow")
def test_it_is_small_and_has_its_command():
    files = [path for path in preset_folder(NAME).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 3_000_000
    assert load(NAME).card["command"].startswith("python examples/wmt14_en_de.py")
    assert [path.name for path in preset_folder(NAME).parent.iterdir()] == [*TRAINED]


@pytest.mark.backends("tensorflow")
def test_commands_take_its_name(tmp_path, capsys, monkeypatch, refused_by):
    monkeypatch.chdir(tmp_path)
    main(["attention", NAME, SENTENCES[0]])
    assert NAME in Path("attention.html").read_text("utf-8")
    capsys.readouterr()
    likely, unlikely = (Path(name) for name in ("likely", "unlikely"))
    likely.write_text(f"{TRANSLATIONS[0]}\n")
    unlikely.write_text("Schläft Hund der.\n")
    Path("source").write_text(f"{SENTENCES[0]}\n")
    scores = []
    for target in (likely, unlikely):
        main(["score", NAME, "--source-file", "source", "--target-file", str(target)])
        scores.append(float(capsys.readouterr().out))
    assert scores[0] > scores[1] + 3
    assert "Did you mean 'demo_en_de'?" in refused_by(main, ["translate", "demo_en_fr"])
    Path(NAME).mkdir()  # A folder of one's own, such as a run's, goes before.
    with pytest.raises(ValueError, match="holds no model"):
        load(NAME)


@pytest.mark.backends("tensorflow")
def test_text_of_another_direction_is_warned_of(tmp_path):
    from keras_attention import corpus_from_files

    start, files = load(NAME), write_files(tmp_path, "train", 0, 30)
    sizes = {"validation_size": 2, "test_size": 2}
    for languages, is_warned in (
        (("de", "en"), True),
        (("en", "de"), False),
        (("eng_Latn", "de-AT"), False),  # other codes of the same languages
        (("source", "target"), False),
    ):
        names = dict(zip(("source_language", "target_language"), languages, strict=True))
        said = corpus_text(corpus_from_files(files, **names, **sizes), start)
        assert ("Warning: The pretrained model translates from 'en' to 'de'" in said) == is_warned
