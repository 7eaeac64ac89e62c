"""Definitions, kernels and how one of them is chosen."""

import importlib
import inspect

import keras
import pytest

from keras_attention.ops import dispatch, operations
from keras_attention.ops.reference import DEFINITIONS


def test_every_kernel_of_the_running_backend_has_a_definition_and_its_signature():
    kernels = dispatch.kernels()
    assert kernels and kernels.keys() <= DEFINITIONS.keys()
    for name, kernel in kernels.items():
        expected = inspect.signature(DEFINITIONS[name]).parameters
        got = inspect.signature(kernel).parameters
        assert [(p.name, p.default) for p in got.values()] == [
            (p.name, p.default) for p in expected.values()
        ], name


def test_a_misspelt_kernel_is_an_error(monkeypatch):
    module = importlib.import_module(f"keras_attention.ops.backends.{keras.backend.backend()}")
    monkeypatch.setitem(module.KERNELS, "liner", module.KERNELS["dot_product_attention"])
    with pytest.raises(ValueError, match=r"without a definition: liner\. .*linear"):
        dispatch.kernels.__wrapped__()


def test_an_operation_is_the_kernel_or_the_definition(monkeypatch):
    monkeypatch.setattr(dispatch, "kernels", lambda: {"linear": max})
    assert dispatch.operation("linear") is max
    assert dispatch.operation("joined_linear") is DEFINITIONS["joined_linear"]


def test_every_definition_is_an_operation():
    for name, definition in DEFINITIONS.items():
        assert getattr(operations, name) is dispatch.kernels().get(name, definition)


def test_what_a_backend_lacks_is_said():
    with pytest.raises(ValueError, match="Flying runs on a plane. Received: the backend"):
        dispatch.backend_choice("Flying", **{"a plane": 1})
    assert dispatch.backend_choice("Walking", **{keras.backend.backend(): 3}, default=4) == 3
