"""What a process that was forked, as `gunicorn --preload` does, can do with its parent's translator."""

import dataclasses
import importlib
import multiprocessing
import os
import re

import keras
import pytest

from keras_attention import Transformer, Translator
from keras_attention.utils.forks import ForkedProcess
from tests.decoding.letters import LetterTokenizer, small_model

BACKEND = keras.backend.backend()
TEXTS = ["cab", "gabel", "hid"]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def work_in_child(work, connection):
    try:
        connection.send(work())
    except Exception as error:
        connection.send((type(error).__name__, str(error)))


def in_child(work):
    """What some work returns, or its error, in a process that is forked now."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=work_in_child, args=(work, there))
    child.start()
    answered = here.poll(120)
    found = here.recv() if answered else "no answer"
    child.kill()
    child.join()
    return found


@pytest.mark.backends("torch")
@pytest.mark.parametrize("has_translated", [False, True])
def test_numba_decodes_in_a_forked_process(has_translated):
    """With the weights that the parent has, and with those that the child gives it."""
    pytest.importorskip("numba")
    model, other = small_model(seed=7), small_model(seed=11)
    translator = Translator(model, LetterTokenizer(), beam_size=2, max_extra_length=3)
    wanted = dataclasses.replace(translator, model=small_model(seed=7))(TEXTS)
    later = dataclasses.replace(translator, model=other)(TEXTS)
    if has_translated:
        assert translator(TEXTS) == wanted
    weights = [keras.ops.convert_to_numpy(weight) for weight in other.weights]

    def work():
        before = translator(TEXTS)
        narrower = dataclasses.replace(translator, beam_size=1)(TEXTS[0])
        for own, value in zip(model.weights, weights, strict=True):
            own.assign(value)
        return before, len(narrower) >= 0, translator(TEXTS)

    assert in_child(work) == (wanted, True, later)
    assert later != wanted


@pytest.fixture
def two_threads():
    """On PyTorch; a forked process has none of them."""
    if BACKEND != "torch":
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("engine", [BACKEND, *["plain"] * (BACKEND == "torch")])
def test_the_backend_decodes_or_says_at_once_that_it_cannot(engine, two_threads):
    """A model so wide that PyTorch computes with several threads."""
    model = small_model(hidden_dim=256, intermediate_dim=512, num_heads=2)
    translator = Translator(
        model, LetterTokenizer(), beam_size=2, max_extra_length=5, engine=engine
    )
    texts = TEXTS * 12
    wanted = translator(texts)
    found = in_child(lambda: translator(texts))
    if BACKEND == "torch":  # with one thread
        assert found == wanted
    else:
        assert found[0] == ForkedProcess.__name__
        assert f"forked after '{BACKEND}' had started" in found[1] and "spawn" in found[1]
        named = re.search(r"one of `(\w+)\.(\w+)`, which needs no backend", found[1])
        assert hasattr(importlib.import_module(named[1]), named[2])


@pytest.mark.backends("torch")
def test_pytorch_that_had_a_gpu_says_at_once_that_it_cannot(monkeypatch):
    """Also in a process that is forked in turn, in which PyTorch knows of no GPU."""
    import torch

    model = small_model()
    translator = Translator(model, LetterTokenizer(), beam_size=2, engine="torch")
    monkeypatch.setattr("keras_attention.utils.forks.had_gpu", False)
    with monkeypatch.context() as there:
        there.setattr(torch.cuda, "is_initialized", lambda: True)

        def work():
            there.setattr(torch.cuda, "is_initialized", lambda: False)
            return in_child(lambda: translator(TEXTS))

        for found in (in_child(lambda: translator(TEXTS)), in_child(work)):
            assert found[0] == ForkedProcess.__name__ and "spawn" in found[1]


def test_a_model_is_not_made_where_it_would_wait_for_ever():
    small_model()
    found = in_child(lambda: Transformer(9, 1, 8, 12, 2).count_params())
    expected = Transformer(9, 1, 8, 12, 2).count_params()
    assert found == expected if BACKEND == "torch" else found[0] == "ForkedProcess"


def test_a_pool_of_forked_processes_answers():
    """A worker that cannot read its task would be started again and again, and the pool wait for ever."""
    translator = Translator(small_model(), LetterTokenizer(), beam_size=2, engine=BACKEND)
    wanted = translator(TEXTS)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        asked = pool.map_async(translator, [TEXTS])
        if BACKEND == "torch":
            assert asked.get(120) == [wanted]
        else:
            with pytest.raises(ForkedProcess, match=f"forked after '{BACKEND}' had started"):
                asked.get(120)
