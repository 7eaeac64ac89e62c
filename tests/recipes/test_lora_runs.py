"""Runs with LoRA: exact resuming, the average and the best checkpoint, a result without it."""

import dataclasses
import shutil
import signal

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.evaluation import Sentences
from keras_attention.recipes import TranslationConfig, checkpoint_translator, train_translation
from keras_attention.recipes.finished_run import FinishedRun
from keras_attention.recipes.order import save_model
from keras_attention.recipes.start import start_of
from keras_attention.training.checkpoint_store import LORA
from keras_attention.utils.run_folder import RunFolder
from tests.recipes.small_runs import training_alone, write_files
from tests.recipes.test_fine_tuning import SETTINGS, weights
from tests.recipes.test_resumed_runs import numbers_of, stopped, train_alone
from tests.visualization.event_files import read_values

ADAPTED = ("query.kernel", "value.kernel")


def config(start, **changes):
    return TranslationConfig(
        start_from=str(start), **{**SETTINGS, "steps": 4, "lora": 3, **changes}
    )


def is_adapted(path):
    return path.endswith(ADAPTED) and "attention" in path


def test_all_but_the_adapted_kernels_stay_as_they_were(start, corpus, tmp_path):
    """And the result needs no LoRA: others open it as any other."""
    moved, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(start, moved)
    report = train_translation(corpus, config(moved, start_share=0.25), run)
    before = weights(Translator.from_run(start).model)
    trained = weights(checkpoint_translator(run, "last").model)
    result = Translator.from_run(run)
    assert result.model.lora_rank is None
    for path, value in weights(result.model).items():
        assert np.array_equal(value, before[path]) != is_adapted(path), path
        mean = 0.25 * before[path].astype("float64") + 0.75 * trained[path].astype("float64")
        np.testing.assert_allclose(value, mean, rtol=1e-6, atol=1e-8, err_msg=path)
    sources, references = list(corpus.test.sources()), list(corpus.references("test"))
    translations = result(sources)
    assert (run / "translations.txt").read_text().splitlines() == translations
    assert Translator.from_preset(result.save_to_preset(tmp_path / "preset"))(sources) == (
        translations
    )
    # A finished run is scored anew where its start is gone, each checkpoint, too.
    shutil.rmtree(moved)
    start_of.cache_clear()
    again = FinishedRun(run).evaluation(Sentences(sources, references))
    assert again["translations"] == translations
    for name, system in again["systems"].items():
        found = report["evaluation"]["systems"][name]["perplexity"]
        assert system["perplexity"] == pytest.approx(found, rel=1e-5), name


@pytest.mark.backends("torch")
def test_a_stopped_run_ends_in_the_same_bits(start, tmp_path):
    files = write_files(tmp_path, "mine", 0, 60)
    settings = dataclasses.replace(config(start), model_arguments={"dropout": 0.2})
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    train_alone(files, undisturbed, 7, settings)
    assert stopped(files, disturbed, signal.SIGTERM, 3, 7, settings) == 143
    train_alone(files, disturbed, 7, settings)
    ends = [run / "checkpoints" / "update-00000007" for run in (undisturbed, disturbed)]
    assert numbers_of(ends[0]) == numbers_of(ends[1])
    parts = [np.load(end / LORA, allow_pickle=False) for end in ends]
    assert len(parts[0].files) >= 3 * 6
    for name in parts[0].files:
        np.testing.assert_array_equal(parts[0][name], parts[1][name], err_msg=name)
        assert name.endswith(".kernel") or parts[0][name].any(), name


@pytest.mark.backends("torch")
def test_the_average_is_that_of_merged_kernels(start, corpus, tmp_path):
    run = tmp_path / "run"
    changes = {"checkpoint_updates": 2, "averaged_checkpoints": 2, "peak_learning_rate": 0.02}
    with training_alone():
        train_translation(corpus, config(start, **changes), run)
    assert not any(tag.startswith("attention/") for tag in read_values(run / "logs"))
    names = ("update-00000002", "update-00000004")
    each = [weights(checkpoint_translator(run, name).model) for name in names]
    average = weights(checkpoint_translator(run, "average").model)
    moved = 0
    for path, value in average.items():
        mean = np.mean([one[path].astype("float64") for one in each], axis=0)
        np.testing.assert_allclose(value, mean, rtol=1e-5, atol=1e-7, err_msg=path)
        moved += not np.array_equal(*(one[path] for one in each))
    # A product of averages would be another: the oracle is the mean of A B from the files.
    sums = 0.0
    for name in names:
        with np.load(run / "checkpoints" / name / LORA) as parts:
            path = "encoder_block_1.self_attention.query."
            a, b = (parts[f"{path}lora_kernel_{x}"].astype("float64") for x in "ab")
            sums = sums + parts[f"{path}kernel"] + a @ b
    np.testing.assert_allclose(
        average["encoder.blocks.0.self_attention.query.kernel"], sums / 2, atol=1e-6
    )
    assert moved == sum(map(is_adapted, average))


@pytest.mark.backends("torch")
def test_the_best_checkpoint(start, corpus, tmp_path):
    run = tmp_path / "run"
    changes = {"best_by": "perplexity", "final_model": "best", "peak_learning_rate": 0.02}
    train_translation(corpus, config(start, **changes), run)
    best = weights(checkpoint_translator(run, "best").model)
    for path, value in weights(Translator.from_run(run).model).items():
        np.testing.assert_allclose(value, best[path], atol=1e-7, err_msg=path)


@pytest.mark.backends("torch")
def test_mixed_precision_ends_in_float32(start, tmp_path):
    """Keras' own merging would round to bfloat16, whose last 16 bits are 0."""
    model = Transformer.from_preset(start, dtype="mixed_bfloat16")
    model.enable_lora(3)
    for layer in model.lora_layers().values():
        layer.lora_kernel_b.assign(np.random.default_rng(5).normal(size=layer.lora_kernel_b.shape))
    save_model(model, RunFolder(tmp_path))
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    path = "encoder.blocks.0.self_attention.query.kernel"
    found = weights(loaded)[path]
    assert ((found.view("uint32") & 0xFFFF) != 0).mean() > 0.9
    np.testing.assert_array_equal(found, weights(model)[path])
