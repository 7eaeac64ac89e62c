"""A whole run, from text to report; interrupted, it ends as if it had not been."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator, corpus_bleu
from keras_attention.callbacks import ConsoleProgress, NonFiniteTraining
from keras_attention.callbacks import budget as budgets
from keras_attention.cli.main import main
from keras_attention.engine.select import EngineSelector
from keras_attention.recipes import (
    TranslationConfig,
    checkpoint_translator,
    order,
    train_translation,
)
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.run import Run
from keras_attention.utils.arguments import rules
from keras_attention.utils.files import read_json
from keras_attention_viewer.page import is_page
from tests.recipes import small_runs
from tests.recipes.small_runs import training_alone
from tests.visualization.event_files import read_values

# Two epochs and a part of the third.
SMALL = dataclasses.replace(small_runs.SMALL, steps=20, bleu_every=2)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The folder and the report of an undisturbed run, trained in a thread as in a notebook or a server."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with ThreadPoolExecutor(1) as thread:
        return folder, thread.submit(train_translation, corpus, SMALL, folder).result()


def test_the_report_is_what_happened(finished, corpus):
    folder, report = finished
    assert read_json(folder / "report.json") == report
    assert report["pairs"] == {"train": 60, "validation": 9, "test": 8}
    assert report["corpus"] == "sixty" and report["synthetic"] is False
    assert report["training"]["updates"] == SMALL.steps
    assert report["config"]["steps"] == SMALL.steps
    assert report["config"]["train_fingerprint"] == corpus.train.fingerprint()
    assert 1.0 < report["validation_perplexity"] < 1000.0
    tokenizer = Tokenizer.load(folder / "tokenizer")
    assert report["vocabulary_size"] == tokenizer.vocabulary_size == 360
    # Encoder, decoder, feed-forward networks, normalisations, table: section 3 of the paper.
    d, f = 16, 24
    feed_forward, norm = 2 * d * f + d + f, 2 * d
    assert report["parameters"] == 3 * 4 * d * d + 2 * feed_forward + 5 * norm + 360 * d


def test_the_model_makes_the_translations_that_were_scored(finished, corpus):
    folder, report = finished
    model = keras.saving.load_model(folder / "model.keras", compile=False, safe_mode=True)
    translator = Translator(model, Tokenizer.load(folder / "tokenizer"), beam_size=2)
    translations = translator(list(corpus.test.sources()))
    assert (folder / "translations.txt").read_text("utf-8").splitlines() == translations
    references = list(corpus.test.targets())
    assert (folder / "references.txt").read_text("utf-8").splitlines() == references
    assert is_page(folder / "attention.html")
    bleu = corpus_bleu(translations, references)
    assert report["test"]["bleu"] == pytest.approx(bleu.score)
    assert report["test"]["bleu_signature"] == bleu.signature
    assert report["test"]["sentences"] == 8
    assert report["evaluation"]["also_trained"] == {
        "validation": {"different": 9, "trained": 0}, "test": {"different": 8, "trained": 0},
    }  # fmt: skip
    sources = list(corpus.test.sources())
    for example in report["test"]["examples"]:
        index = sources.index(example["source"])
        assert example["translation"] == translations[index]
        assert example["reference"] == references[index]


@pytest.mark.backends("torch")
def test_a_preset_of_a_run_has_a_card_of_it(finished, corpus, tmp_path):
    folder, report = finished
    preset = Translator.from_preset(folder).save_to_preset(
        tmp_path / "preset", card={"license": "mit"}
    )
    card = json.loads((preset / "card.json").read_text("utf-8"))
    assert card["languages"] == ["source", "target"] and card["license"] == "mit"
    fingerprints = {name: text.fingerprint() for name, text in corpus.splits.items()}
    assert card["corpus"] == {
        "name": "sixty",
        "synthetic": False,
        "description": corpus.description,
        "pairs": {"train": 60, "validation": 9, "test": 8},
        "sha256": fingerprints,
    }
    training = card["training"]
    assert training["updates"] == SMALL.steps and training["settings"]["seed"] == SMALL.seed
    assert training["flops"] == report["evaluation"]["training_cost"]["flops"]
    for name in ("bleu", "bleu_signature", "chrf", "chrf_signature"):
        assert card["scores"][name] == report["test"][name]
    assert card["environment"] == report["environment"]
    assert card["model"]["dropout"] == Transformer.from_preset(folder).dropout == 0.1
    assert f"* bleu: {report['test']['bleu']}" in (preset / "README.md").read_text("utf-8")
    sample = json.loads((preset / "keras_attention.json").read_text("utf-8"))["sample"]
    assert [row["source"] for row in sample] == [
        row["source"] for row in report["test"]["examples"]
    ]
    again = Translator.from_preset(preset)
    assert again.longest_source == report["batches"]["longest_source"]
    assert again(list(corpus.test.sources())) == Translator.from_run(folder)(
        list(corpus.test.sources())
    )


@pytest.mark.backends("torch")
def test_a_report_takes_sections_of_the_translations(finished, corpus, tmp_path):
    folder, known = finished
    run = Run(corpus, SMALL, shutil.copytree(folder, tmp_path / "run"))
    run.training = known["training"]
    said = {
        "words": lambda _, lines: {"count": len(" ".join(lines).split())},
        "no": lambda *_: None,
    }
    report = order.evaluate(run, said)
    count = len((folder / "translations.txt").read_text("utf-8").split())
    assert report["words"] == report["evaluation"]["words"] == {"count": count}
    assert (
        known.keys() ^ report.keys() == {"words"}
        and report["test"]["bleu"] == known["test"]["bleu"]
    )


@pytest.mark.backends("torch")
def test_a_run_knows_the_longest_source_of_its_training(finished, corpus):
    folder, _ = finished
    tokenizer = Tokenizer.load(folder / "tokenizer")
    longest = max(map(len, tokenizer.encode(list(corpus.train.sources())))) + 1
    translator, by_checkpoint = Translator.from_run(folder), checkpoint_translator(folder)
    assert translator.longest_source == by_checkpoint.longest_source == longest < SMALL.max_length
    known = {name: translator.card[name] for name in by_checkpoint.card}
    # Not the scores: they are the finished model's.
    assert by_checkpoint.card == known and known["corpus"] and not {"scores", "training"} & {*known}
    unfinished = shutil.copytree(folder, folder.with_name("unfinished"))
    (unfinished / "report.json").unlink()
    assert checkpoint_translator(unfinished).longest_source == SMALL.max_length


@pytest.mark.backends("torch")
def test_a_run_that_is_not_finished_translates(finished, corpus, tmp_path, capsys, refused_by):
    """The oracles: the finished run's model, and Keras' own reading of a checkpoint's weights."""
    folder, report = finished
    place = shutil.copytree(folder, tmp_path / "a moved run")
    for file in ("model.keras", "report.json"):
        (place / file).unlink()
    shutil.rmtree(place / "spec")
    with pytest.raises(ValueError, match=f"--output-dir '{place}'.*--checkpoint last"):
        Translator.from_run(place)
    model = keras.saving.load_model(folder / "model.keras", compile=False, safe_mode=True)
    averaged = checkpoint_translator(place, "average")
    assert averaged.beam_size == SMALL.beam_size
    for own, other in zip(averaged.model.weights, model.weights, strict=True):
        if "float" in keras.backend.standardize_dtype(own.dtype):
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (own, other)))
    *_, before, last = sorted((place / "checkpoints").iterdir())
    sources = list(corpus.test.sources())
    for name, path in (("last", last), (before.name, before)):
        model.load_weights(path / "model.weights.h5")
        wanted = Translator(model, averaged.tokenizer, beam_size=2).translate(sources)
        found = checkpoint_translator(place, name).translate(sources)
        assert [[one.score for one in best] for best in found] == [
            pytest.approx([one.score for one in best], abs=1e-5) for best in wanted
        ]
    (tmp_path / "in").write_text("".join(f"{source}\n" for source in sources), "utf-8")
    command = ["translate", str(place), "--input", str(tmp_path / "in"), "--json"]
    main([*command, "--checkpoint", before.name])
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    to = ["--format", "hugging_face", "--checkpoint", before.name]
    main(["export", str(place), str(tmp_path / "exported"), *to])
    capsys.readouterr()
    exported = Translator.from_preset(tmp_path / "exported", length_penalty=0.6)
    assert exported(sources) == [best[0].text for best in found]
    scores = [best[0].score for best in wanted]
    assert [row["translations"][0]["score"] for row in rows] == pytest.approx(scores, abs=1e-5)
    (tmp_path / "phrases").write_text("Hund\n" * len(sources), "utf-8")
    (tmp_path / "terms").write_text("the\tKatze\n", "utf-8")
    contents = ["--phrases-file", tmp_path / "phrases", "--glossary", tmp_path / "terms"]
    main([*command, "--checkpoint", before.name, *map(str, contents)])
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    glossed = checkpoint_translator(place, before.name, glossary={"the": "Katze"})
    wanted = glossed.translate(sources, phrases=[["Hund"]] * len(sources))
    texts = [best[0].text for best in wanted]
    assert [row["translations"][0]["text"] for row in rows] == texts
    assert all("Hund" in text for text in texts) and any("Katze" in text for text in texts)
    assert "--with cannot be combined with --checkpoint" in refused_by(
        main, [*command, "--checkpoint", "last", "--with", str(folder)]
    )
    assert "Did you mean 'last'?" in refused_by(main, [*command, "--checkpoint", "lats"])
    with pytest.raises(SystemExit):
        main([*command, "--checkpoint", "last", "--output-dir", str(tmp_path / "new")])
    assert "cannot be combined with --output-dir" in capsys.readouterr().err
    shutil.rmtree(place / "checkpoints")
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        checkpoint_translator(place)


@pytest.mark.backends("torch")
def test_the_model_is_the_average_of_the_checkpoints(finished):
    folder, report = finished
    model = keras.saving.load_model(folder / "model.keras", compile=False, safe_mode=True)
    averaged = model.get_weights()
    paths = sorted((folder / "checkpoints").glob("*/*.weights.h5"))
    assert len(paths) == report["training"]["averaged_checkpoints"] == 2
    values = []
    for path in paths:
        model.load_weights(path, skip_mismatch=False)
        values.append([np.float64(w) for w in keras.tree.map_structure(
            keras.ops.convert_to_numpy, model.trainable_variables)])  # fmt: skip
    trainable = [w.path for w in model.trainable_variables]
    index = {w.path: i for i, w in enumerate(model.weights)}
    moved = 0.0
    for position, path in enumerate(trainable):
        expected = (values[0][position] + values[1][position]) / 2
        np.testing.assert_allclose(averaged[index[path]], expected, atol=1e-6)
        moved += np.abs(values[0][position] - values[1][position]).sum()
    assert moved > 0.01


def test_tensorboard_shows_curves_and_attention(finished):
    folder, report = finished
    values = read_values(folder / "logs")
    curves = "quality/loss rate/learning_rate work/tokens_per_second train/epoch_loss".split()
    curves += "rate/gradient_norm work/padding work/flops_per_second work/mfu".split()
    curves += "quality/perplexity quality/bleu quality/chrf".split()
    curves += "with_average/test_bleu with_average/test_chrf".split()
    for tag in curves:
        assert tag in values, sorted(values)
        assert all(np.isfinite(value) for _, value in values[tag])
    validation = read_values(folder / "logs" / "validation")
    losses = validation["quality/loss"]
    assert "quality/validation_loss" not in values  # nothing is drawn twice
    # TensorBoard unfolds the first two groups: those with the loss and BLEU.
    drawn = {tag for tag in {*values, *validation} if not tag.startswith("attention/")}
    assert "quality" in sorted({tag.partition("/")[0] for tag in drawn})[:2]
    epochs = [epoch for epoch in report["training"]["history"] if "val_loss" in epoch]
    assert [value for _, value in losses] == pytest.approx(
        [e["val_loss"] for e in epochs], rel=1e-6
    )
    assert [step for step, _ in losses] == [step for step, _ in values["quality/perplexity"]]
    # The report counts with the peak that the log counted with.
    cost = report["evaluation"]["training_cost"]
    logged = values["work/flops_per_second"][-1][1] / values["work/mfu"][-1][1]
    assert cost["peak"] == pytest.approx(logged, rel=1e-4)
    for metric in ("bleu", "chrf"):
        expected = pytest.approx(report["test"][metric], abs=1e-4)
        assert values[f"with_average/test_{metric}"] == [(SMALL.steps, expected)]
    tags = sorted(tag for tag in values if tag.startswith("attention/"))
    assert tags == [f"attention/{n}/{kind}" for n in range(5) for kind in ("output", "reference")]
    for tag in tags:
        entries = dict(values[tag])
        assert len(entries) == len(values[tag])  # each step once
        assert max(entries) == SMALL.steps
        if tag.endswith("reference"):
            assert {0, 1, 2, 5}.issubset(entries)
        last = entries[SMALL.steps].header
        assert (last["importance"] is not None) == tag.endswith("reference")
        heads = [head for layers in last["measures"].values() for layer in layers for head in layer]
        # A translation of one token has no row that could be broad or narrow.
        assert all("entropy" in head for head in heads) or tag.endswith("output")
        assert all(np.isfinite(head.get("entropy", 0.0)) for head in heads)
        assert sum("best_alignment" in head for head in heads) == 1


@pytest.mark.backends("torch")
def test_after_refused_starts_the_corrected_command_works(corpus, tmp_path):
    config = dataclasses.replace(SMALL, steps=1, bleu_every=99)
    # The last is seen in the tokens of the text alone, which were made in the folder.
    for batch_tokens in (3, 60, 200):
        with pytest.raises(ValueError, match="`batch_tokens` .* is too small"):
            train_translation(
                corpus, dataclasses.replace(config, batch_tokens=batch_tokens), tmp_path / "run"
            )
        assert not list(tmp_path.glob("run*"))
    with training_alone():
        assert train_translation(corpus, config, tmp_path / "run")["training"]["updates"] == 1
    assert read_json(tmp_path / "run" / "config.json")["batch_tokens"] == 600


@pytest.mark.backends("torch")
@pytest.mark.parametrize(("known_after", "left"), [(1, ["2 of 6"]), (2, ["1 of 6"]), (3, [])])
def test_what_is_left_is_said_again_if_something_is(
    corpus, tmp_path, monkeypatch, capsys, known_after, left
):
    rows = []
    compile_beside = lambda selector, needed, preset: rows.append(needed)  # noqa: E731
    monkeypatch.setattr(EngineSelector, "compile_beside", compile_beside)
    monkeypatch.setattr(budgets, "_is_known", lambda updates, seconds: updates >= known_after)
    config = dataclasses.replace(SMALL, steps=6, bleu_every=99)
    with training_alone():
        train_translation(corpus, config, tmp_path / "run")
    said = re.findall(r"Budget: (.*?), \d", capsys.readouterr().err)
    assert said == ["6 updates", *(f"{each} updates left" for each in left)]
    # What may be compiled beside: 3 systems translate 8 sentences with 2 beams.
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer")
    lengths = [len(tokenizer.encode(source)) for source in corpus.validation.sources()]
    assert rows == [pytest.approx(3 * 8 * 2 * sum(lengths) / 9)]


@pytest.mark.backends("torch")
def test_a_learning_rate_that_is_much_too_high_is_named_by_the_error(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(
        rules(TranslationConfig), "peak_learning_rate", float | None
    )  # as none may be
    config = dataclasses.replace(SMALL, peak_learning_rate=1e30, bleu_every=1)
    with pytest.raises(NonFiniteTraining, match="not finite in update 2: epoch 1, batch 2 of"):
        train_translation(corpus, config, tmp_path / "run")
    assert not (tmp_path / "run" / "report.json").exists()


@pytest.mark.backends("torch")
def test_a_last_update_that_spoils_the_weights_is_named_by_the_error(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(
        rules(TranslationConfig), "peak_learning_rate", float | None
    )  # as none may be
    config = dataclasses.replace(SMALL, peak_learning_rate=1e30, steps=1)
    with pytest.warns(UserWarning, match="diverged"):
        with pytest.raises(FloatingPointError, match=r"logits for text \d are not finite"):
            train_translation(corpus, config, tmp_path / "run")


@pytest.mark.backends("torch")
def test_the_same_call_again_returns_the_report_and_trains_nothing(
    finished, corpus, monkeypatch, capsys
):
    folder, report = finished
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: pytest.fail("trained again"))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert train_translation(corpus, SMALL, folder) == report
    assert "a higher --steps (it had 20)" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    with pytest.raises(ValueError, match="seed: 1 there, 2 asked for"):
        train_translation(corpus, dataclasses.replace(SMALL, seed=2), folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.backends("tensorflow")  # on PyTorch: test_resumed_runs.py
def test_stopped_by_a_signal_it_goes_on_as_if_nothing_had_happened(
    finished, corpus, tmp_path, monkeypatch, capsys
):
    _, undisturbed = finished
    batches = []
    original = ConsoleProgress.on_train_batch_begin

    def stops_in_the_second_epoch(self, batch, logs=None):
        batches.append(batch)
        if batches.count(0) == 2 and batch == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, batch, logs)

    monkeypatch.setattr(ConsoleProgress, "on_train_batch_begin", stops_in_the_second_epoch)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        train_translation(corpus, SMALL, tmp_path / "run")
    assert "The same command continues this run" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == handler
    assert batches[-2:] == [0, 1] and len(batches) < SMALL.steps
    assert not (tmp_path / "run" / "report.json").exists()

    report = train_translation(corpus, SMALL, tmp_path / "run")
    assert "Continuing in epoch 2, after update " in capsys.readouterr().err
    assert report["training"]["updates"] == SMALL.steps
    same = pytest.approx(undisturbed["validation_perplexity"], rel=1e-4)
    assert report["validation_perplexity"] == same
    losses = [[epoch["loss"] for epoch in r["training"]["history"]] for r in (report, undisturbed)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("steps,warmup", [(30, 10), (8, 4)])
def test_a_peak_of_the_learning_rate(steps, warmup):
    """Up to the peak, for at most half of the steps, then down as a cosine."""
    config = dataclasses.replace(
        SMALL, steps=steps, minutes=None, peak_learning_rate=0.5, warmup_steps=10
    )
    tokenizer = Tokenizer.train(["a b c d e f"] * 9, vocabulary_size=280)
    optimizer = Resolved(config).model(tokenizer.vocabulary_size).optimizer
    rates = [float(optimizer._learning_rate(step)) for step in range(steps + 1)]
    assert max(rates) == rates[warmup] == pytest.approx(0.5)
    assert 0 < rates[0] <= 0.5 / warmup * (1 + 1e-6)
    halfway = (warmup + steps) // 2
    assert rates[halfway] == pytest.approx(0.25, rel=1e-4) and rates[steps] < 1e-6
    assert all(a > b for a, b in itertools.pairwise(rates[warmup:]))


@pytest.mark.backends("torch")
def test_updates_are_compiled_if_asked_for():
    for is_asked, slow_batches in ((False, 1), (True, 2)):
        model = Resolved(dataclasses.replace(SMALL, jit_compile=is_asked)).model(30)
        assert (model.jit_compile, model.slow_batches) == (is_asked, slow_batches)


@pytest.mark.backends("torch")
def test_training_text_with_bpe_dropout(corpus, tmp_path):
    """An epoch is about as many pairs as without; the validation text stays as it is."""
    config = dataclasses.replace(SMALL, bpe_dropout=0.3, bpe_samples=3)
    resolved = Resolved(config)
    tokenizer = resolved.tokenizer(corpus, tmp_path / "tokenizer")
    batches, validation = resolved.batches(corpus, tokenizer, tmp_path / "store")
    plain, plain_validation = Resolved(SMALL).batches(corpus, tokenizer, tmp_path / "other")
    assert (len(batches.store), len(plain.store)) == (180, 60)
    assert batches.epochs_per_pass == 3 and plain.epochs_per_pass == 1
    assert batches.statistics()["pairs"] == pytest.approx(60, abs=20)
    assert validation.store.folder.name == plain_validation.store.folder.name
    model = resolved.model(tokenizer.vocabulary_size)
    model.fit(batches, epochs=4, shuffle=False, verbose=0)
    assert batches.epoch == 4 and model.optimizer.iterations == 4 * len(batches)
    # The evaluation of the run's folder finds the same batches.
    fingerprints = {
        f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()
    }
    settings = {**dataclasses.asdict(config), **fingerprints}
    found, found_validation = Resolved.of_settings(settings).found_batches(
        settings, tokenizer, tmp_path / "store"
    )
    assert found_validation.store.folder == validation.store.folder
    assert len(found_validation) == len(validation)
    for epoch, i in itertools.product((0, 4), range(len(batches))):
        np.testing.assert_array_equal(found.batch(epoch, i)[1], batches.batch(epoch, i)[1])


@pytest.mark.backends("torch")
@pytest.mark.parametrize("more", [{"steps": 30}, {"minutes": 10.0}])
def test_the_budget_that_a_rate_follows_may_not_change(corpus, tmp_path, more):
    config = dataclasses.replace(SMALL, minutes=9.0, peak_learning_rate=0.01)
    run = Run(corpus, config, tmp_path / "run")
    run.folder.claim(run.settings)
    (run.folder.checkpoints / "update-00000001").mkdir(parents=True)
    Run(corpus, config, tmp_path / "run").check()
    with pytest.raises(ValueError, match=f"{next(iter(more))}: .* there, .* asked for"):
        Run(corpus, dataclasses.replace(config, **more), tmp_path / "run").check()


@pytest.mark.backends("torch")
def test_an_error_before_the_first_update_is_the_one_that_is_seen(corpus, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise ZeroDivisionError("in fit")

    monkeypatch.setattr(Transformer, "fit", fails)
    with pytest.raises(ZeroDivisionError, match="in fit"):
        train_translation(corpus, SMALL, tmp_path / "run")
