"""The learning rate against the values of equation 3."""

import keras
import numpy as np
import pytest

from keras_attention import LearningRateSchedule

# (step counted from 1, width) -> rate
VALUES = {
    (1, 512): 1.7469281074e-07,
    (100, 512): 1.7469281074e-05,
    (4000, 512): 6.9877124297e-04,
    (10000, 512): 4.4194173824e-04,
    (100000, 512): 1.3975424859e-04,
    (300000, 512): 8.0687153046e-05,
    (1, 1024): 1.2352647110e-07,
    (100, 1024): 1.2352647110e-05,
    (4000, 1024): 4.9410588440e-04,
    (10000, 1024): 3.1250000000e-04,
    (100000, 1024): 9.8821176880e-05,
    (300000, 1024): 5.7054433073e-05,
}


@pytest.mark.parametrize("step,width", VALUES)
def test_values(step, width):
    rate = LearningRateSchedule(width)(step - 1)  # Keras counts updates done.
    assert float(rate) == pytest.approx(VALUES[step, width], rel=2e-6)


def test_factor_and_warmup_of_later_tensor2tensor():
    assert float(LearningRateSchedule(512, 8000, 2.0)(7999)) == pytest.approx(9.8821176880e-04)
    # Parsing, 2017-06: warmup 16000 and five times the formula.
    assert float(LearningRateSchedule(1024, 16000, 5.0)(15999)) == pytest.approx(1.2352647110e-03)


def test_the_optimizer_starts_at_step_one():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(LearningRateSchedule(4, warmup_steps=3)), "mae")
    before = model.get_weights()[0].item()
    model.fit(np.array([[1.0]]), np.array([[100.0]]), epochs=1, verbose=0)
    assert model.get_weights()[0].item() - before == pytest.approx(4**-0.5 * 3**-1.5, rel=1e-5)


def test_round_trip():
    schedule = LearningRateSchedule(8, 9, 0.5, name="mine")
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    assert isinstance(copy, LearningRateSchedule)
    assert copy.get_config() == {"hidden_dim": 8, "warmup_steps": 9, "factor": 0.5, "name": "mine"}


@pytest.mark.parametrize("name", ["hidden_dim", "warmup_steps", "factor"])
def test_nothing_below_zero(name):
    with pytest.raises(ValueError, match=f"{name}=-1"):
        LearningRateSchedule(**{"hidden_dim": 8, name: -1})
