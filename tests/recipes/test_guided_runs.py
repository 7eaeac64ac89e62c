"""Runs with guided alignment: exact resuming, error rates in the report, the head that translators ask."""

import dataclasses
import json
import signal

import numpy as np
import pytest

from keras_attention import (
    ParallelText,
    TokenBatches,
    Tokenizer,
    TokenStore,
    Transformer,
    Translator,
    load_corpus,
)
from keras_attention.data.alignments import TokenAlignments, WordAlignments
from keras_attention.recipes import checkpoint_translator, plan_training, train_translation
from keras_attention.recipes.aligning import with_details
from keras_attention.recipes.finished_run import FinishedRun
from keras_attention.recipes.start import guided_head
from keras_attention.visualization import attention_entries
from keras_attention_viewer.alignment import Alignments
from tests.recipes.small_runs import SMALL
from tests.recipes.test_resumed_runs import TINY, same_state, stopped, train, train_alone

pytestmark = pytest.mark.backends("torch")  # the loss of each backend: ../models/

SIZES = {"num_layers": (1, 3), "hidden_dim": 16, "intermediate_dim": 24, "num_heads": 2}


@pytest.fixture(scope="module")
def corpus():
    """Some pairs of each part of the demo corpus, with their true links."""
    whole = load_corpus("demo")
    texts = {
        name: ParallelText(name, list(text)[:count])
        for (name, text), count in zip(whole.splits.items(), (60, 7, 8), strict=True)
    }
    return dataclasses.replace(whole, **texts)


@pytest.fixture(scope="module")
def guided(corpus, tmp_path_factory):
    """The folders and the reports of a run with guided alignment, and of the same one without."""
    folder = tmp_path_factory.mktemp("guided")
    plain = dataclasses.replace(
        SMALL, model_arguments=SIZES, steps=4, beam_size=1, attention_log=False
    )
    config = dataclasses.replace(plain, guided_alignment="gold", guided_alignment_weight=2.0)
    runs = {"plain": plain, "guided": config}
    return folder, {name: train_translation(corpus, c, folder / name) for name, c in runs.items()}


def test_the_report_says_how_well_words_are_aligned(guided):
    folder, reports = guided
    found, plain = (reports[name]["alignment"] for name in ("guided", "plain"))
    assert found["head"] == [1, 0] and found["is_guided"]  # of three layers the last but one
    assert not plain["is_guided"]
    for figures in (found, plain):
        assert (figures["split"], figures["sentences"]) == ("test", 8)
        assert 0 < figures["error_rate"] <= 1
    text = (folder / "guided" / "report.txt").read_text("utf-8")
    said = (
        f"{found['error_rate']:.3f} on 8 test pairs, by layer 2, head 1 (--alignment-head 1 0), "
        "which learned alignments"
    )
    assert said in " ".join(text.split())
    assert "the best one on the validation set" in (folder / "plain" / "report.txt").read_text()
    settings = json.loads((folder / "guided" / "config.json").read_text("utf-8"))
    assert settings["guided_alignment_head"] == [1, 0]
    assert len(settings["guided_alignment_sha256"]) == 64
    plain_settings = json.loads((folder / "plain" / "config.json").read_text("utf-8"))
    assert "guided_alignment_sha256" not in plain_settings


def test_the_alignments_to_learn_are_those_that_are_measured(corpus, tmp_path):
    """A head with just these weights would have hardly any errors; one a row off has many more."""
    tokenizer = Tokenizer.train(corpus.train.both_sides(), vocabulary_size=400)
    store = TokenStore.build(tmp_path / "store", corpus.train, tokenizer)
    links = WordAlignments(corpus, "gold")
    batches = TokenBatches(
        store, alignments=TokenAlignments.build(store, links, tokenizer), shuffle=False
    )
    model = Transformer(tokenizer.vocabulary_size, **{**SIZES, "num_layers": 1})
    pairs = list(corpus.train)
    entries = attention_entries(
        model, tokenizer, pairs, alignments=[corpus.alignments[pair] for pair in pairs]
    )
    shifted = {0: Alignments(1, "read"), -1: Alignments(1, "read")}
    for index in range(len(batches)):
        learned = batches.batch(0, index)[0]["alignments"]
        for weights, pair in zip(learned, batches.pairs(0, index).tolist(), strict=True):
            if pair >= 0:
                target, source = entries[pair].weights["cross"][0].shape[-2:]
                for shift, measured in shifted.items():
                    rows = np.roll(weights, shift, axis=0)[None, :target, :source]
                    measured.add(rows, entries[pair])
    right, wrong = (float(measured.error_rates()[0]) for measured in shifted.values())
    assert right < 0.01 and wrong > 0.05


def test_translators_ask_the_guided_head(guided, corpus):
    folder, reports = guided
    texts = list(corpus.test.sources())[:6]
    for name in ("guided", "plain"):
        translator = Translator.from_run(folder / name, show_progress=False)
        found = translator.translate(texts)
        head = reports[name]["alignment"]["head"]
        asked = with_details(translator, texts, found)
        assert asked == with_details(translator, texts, found, head)
        others = {
            tuple(best[0].alignment for best in with_details(translator, texts, found, (layer, n)))
            for layer in range(3)
            for n in range(2)
        }
        assert len(others) > 1
    last = checkpoint_translator(folder / "guided", "last", show_progress=False)
    assert last.card["alignment"]["head"] == [1, 0]
    card = last.card | Translator.from_run(folder / "guided", show_progress=False).card
    assert "guided_alignment" not in card["training"]["settings"]


def test_a_finished_run_opens_without_its_alignments(guided):
    run = FinishedRun(guided[0] / "guided")
    assert run.batches is not None and run.batches.alignments is None
    assert run.report["alignment"]["is_guided"]


def aligned_config(files, corpus_pairs, path, **more):
    """Links of the first word of each training pair of these files, and of some more."""
    random = np.random.default_rng(4)
    lines = []
    for source, target in corpus_pairs:
        sizes = len(source.split()), len(target.split())
        links = {(0, 0)} | {tuple(map(int, random.integers(0, sizes))) for _ in range(4)}
        lines.append(" ".join(f"{s}-{t}" for s, t in sorted(links)))
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    given = {"attention_log": False, "guided_alignment": str(path), **more}
    return dataclasses.replace(TINY, **given)


def test_a_run_goes_on_exactly(files, tmp_path, capsys, refused_by):
    from keras_attention import corpus_from_files

    pairs = list(corpus_from_files(files).train)
    config = aligned_config(files, pairs, tmp_path / "links")
    folder, whole, plain = (tmp_path / name for name in ("run", "whole", "plain"))
    assert stopped(files, folder, signal.SIGINT, 6, 10, config) == 130
    train_alone(files, folder, 10, config)
    train_alone(files, whole, 10, config)
    assert same_state(folder, whole, 10)
    train_alone(files, plain, 10, dataclasses.replace(config, guided_alignment=None))
    assert not same_state(plain, whole, 10)

    # The name of the file may change, its links may not.
    lines = (tmp_path / "links").read_text("utf-8").splitlines()
    moved = tmp_path / "moved"
    moved.write_text("\n".join(lines) + "\n", "utf-8")
    train_alone(files, folder, 12, dataclasses.replace(config, guided_alignment=str(moved)))
    capsys.readouterr()
    moved.write_text("\n".join([*lines[:-1], "0-0"]) + "\n", "utf-8")
    assert "alignments differs" in refused_by(
        train, files, folder, 14, dataclasses.replace(config, guided_alignment=str(moved))
    )


def test_wrong_files_are_refused_before_anything_is_made(files, tmp_path, refused_by):
    short = tmp_path / "short"
    short.write_text("0-0\n", "utf-8")
    for given, message in (
        (short, "has 1 lines, but"),
        (tmp_path / "absent", "does not exist"),
        ("gold", "no training pair of 'mine' has true links"),
    ):
        config = dataclasses.replace(TINY, guided_alignment=str(given))
        assert message in refused_by(train, files, tmp_path / "run", 5, config)
        assert not (tmp_path / "run").exists()


def test_a_plan_refuses_them_too(corpus, tmp_path):
    short = tmp_path / "short"
    short.write_text("0-0\n", "utf-8")
    config = dataclasses.replace(SMALL, guided_alignment=str(short))
    with pytest.raises(ValueError, match="1 lines, but 'train' has 60"):
        plan_training(corpus, config, tmp_path / "plan", try_longest=False)
    assert not (tmp_path / "plan").exists()


def test_which_head_it_is():
    def head(layers, given=None, **options):
        sizes = {**SIZES, "num_layers": layers}
        options = {"model_arguments": sizes, **options}
        return guided_head(
            dataclasses.replace(
                SMALL, guided_alignment="gold", guided_alignment_head=given, **options
            )
        )

    assert guided_head(SMALL) is None
    assert [head(1), head(2), head((1, 6))] == [(0, 0), (0, 0), (4, 0)]
    assert head((1, 6), (5, 1)) == (5, 1)
    for given in ((2, 0), (0, 2)):
        with pytest.raises(ValueError, match="a layer from 0 to 1 and a head from 0 to 1"):
            head((6, 2), given)
    fine_tuned = dataclasses.replace(
        SMALL, model_arguments={}, start_from="demo_en_de", guided_alignment="gold"
    )
    layer, number = guided_head(fine_tuned)
    assert layer >= 0 and number == 0
