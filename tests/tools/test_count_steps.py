"""How long the ways of the data through the files are: printed, with limits that only go down."""

import numpy as np
import pytest
from keras import ops

from keras_attention.layers.masks import nan_if_additive, padding_mask
from tools import count_steps
from tools.count_steps import Step, steps

pytestmark = pytest.mark.backends("tensorflow", "torch")


def test_a_call_of_another_file_is_a_step_and_counts_once():
    def run():
        for mask in ([[True, False]], [[True]]):
            nan_if_additive(np.ones(1), ops.cast(mask, "int32"))

    assert steps(run) == [
        Step("user", "layers/masks.py: nan_if_additive"),
        Step("layers/masks.py", "ops/ids.py: one_or_nan"),
    ]


def test_nothing_counts_behind_the_last_step():
    first = "layers/masks.py: padding_mask"
    assert steps(lambda: (len("ab"), padding_mask([[7]])), last={first}) == [Step("user", first)]


@pytest.mark.backends("torch")  # beside the other tests for which Numba compiles this search
def test_the_way_from_a_text_to_its_translation():
    pytest.importorskip("numba")
    found = count_steps.steps_of_translation()
    assert found[0] == Step("user", "decoding/translator.py: __call__")
    assert any(step.callee == "engine/numba/engine.py: search" for step in found)
    # On TensorFlow 20: PyTorch asks each weight for its tensor, to see whether one has changed.
    assert len(found) <= 21
    print(f"{len(found)} steps", *found, sep="\n")


@pytest.mark.backends("tensorflow")
def test_the_way_from_token_ids_to_the_attention_kernel():
    found = count_steps.steps_to_attention()
    assert found[0] == Step("user", "models/transformer.py: __call__")
    assert found[-1].callee in count_steps.KERNELS
    assert len(found) <= 16
    print(f"{len(found)} steps", *found, sep="\n")
