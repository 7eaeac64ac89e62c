"""A moving average of the weights beside a training: against a loop, and from checkpoints."""

import keras
import numpy as np
import pytest

from keras_attention import Adam
from keras_attention.training import load_checkpoint
from keras_attention.training.checkpoint_store import write_checkpoint
from keras_attention.training.checkpoints import load_moving_average, with_moving_average
from tests.helpers import assert_each

DECAY = 0.7


def make_model(moving_average=DECAY):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    model.compile(Adam(0.1, moving_average=moving_average), "mse")
    return model


def numbers(variables):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in variables]


def averages(model):
    return numbers(average for _, average in model.optimizer.moving_averages)


class Weights(keras.callbacks.Callback):
    """The weights after each update."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(numbers(self.model.trainable_variables))


def fitted(moving_average, *callbacks):
    """A model after 24 updates of `fit`."""
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(3)
    model = make_model(moving_average)
    data = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    model.fit(*data, batch_size=1, epochs=2, verbose=0, callbacks=list(callbacks))
    return model


@pytest.fixture(scope="module")
def trained():
    """Such a model, and its weights after each update."""
    weights = Weights()
    return fitted(DECAY, weights), weights.found


def test_it_is_that_of_a_loop(trained):
    """The oracle: the documented formula in NumPy, in float64."""
    model, found = trained
    assert len(found) == 24
    wanted = [np.zeros(w.shape) for w in found[0]]
    for t, weights in enumerate(found, start=1):
        decay = min(DECAY, (t - 1) / (t + 9))
        wanted = [decay * a + (1 - decay) * w for a, w in zip(wanted, weights, strict=True)]
    assert min(DECAY, 23 / 33) < DECAY  # It still warms up; 0.3 does not.
    for own, other, last in zip(averages(model), wanted, found[-1], strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=1e-6)
        assert np.abs(own - last).max() > 1e-3


def test_the_optimizer_has_no_weights_of_the_model(trained):
    """JAX refuses to train with a variable that is there twice."""
    model, _ = trained
    own = {id(variable) for variable in model.optimizer.variables}
    assert not own & {id(variable) for variable in model.variables}
    assert {id(average) for _, average in model.optimizer.moving_averages} <= own


@pytest.mark.backends("torch")
def test_training_itself_is_the_same(trained):
    model = fitted(None)
    assert_each(numbers(model.trainable_variables), trained[1][-1], rtol=1e-5, atol=1e-7)
    assert model.optimizer.moving_averages == []


def test_a_steady_decay_and_a_gradient_that_is_not_finite():
    weight = keras.Variable([1.0, 2.0])
    optimizer = Adam(0.5, moving_average=0.05)
    wanted = None
    for step in range(1, 5):
        optimizer.apply([keras.ops.convert_to_tensor([0.5 * step, -1.0])], [weight])
        decay = min(0.05, (step - 1) / (step + 9))
        value = numbers([weight])[0]
        wanted = value if wanted is None else decay * wanted + (1 - decay) * value
    ((same, average),) = optimizer.moving_averages
    assert same is weight
    np.testing.assert_allclose(numbers([average])[0], wanted, rtol=1e-5)
    before = numbers([weight, average])
    for gradient in ([np.nan, 1.0], [1.0, 1.0]):
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
    np.testing.assert_array_equal(before, numbers([weight, average]))


def test_it_is_used_for_a_while_and_given_back(trained):
    model, found = trained
    data = np.random.default_rng(4).normal(size=(5, 3))
    with with_moving_average(model):
        within = numbers(model.trainable_variables)
        predicted = model.predict(data, verbose=0)
    np.testing.assert_array_equal(within[0], averages(model)[0])
    with pytest.raises(KeyError), with_moving_average(model):
        raise KeyError
    assert_each(numbers(model.trainable_variables), found[-1])
    by_hand = (data @ within[0] + within[1]) @ within[2] + within[3]
    np.testing.assert_allclose(predicted, by_hand, rtol=1e-4, atol=1e-5)
    for other in (make_model(), make_model(None), keras.Sequential([keras.layers.Dense(1)])):
        with with_moving_average(other):  # Before the first update, or without one.
            assert other.weights is not None


def test_it_has_its_place_in_a_checkpoint(trained, tmp_path):
    model, found = trained
    write_checkpoint(tmp_path / "one", model, {})
    again = make_model()
    load_checkpoint(again, tmp_path / "one")
    assert_each(averages(again), averages(model))
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    load_moving_average(plain, [tmp_path / "one"])
    assert_each(numbers(plain.weights), averages(model))
    write_checkpoint(tmp_path / "two", make_model(None), {})
    with pytest.raises(ValueError, match="'.*two' holds no moving average"):
        load_moving_average(plain, [tmp_path / "two"])


@pytest.mark.backends("torch")
def test_its_settings_survive_saving():
    optimizer = Adam.from_config(Adam(moving_average=0.99).get_config())
    assert optimizer.moving_average == 0.99
    assert Adam.from_config(keras.optimizers.Adam().get_config()).moving_average is None


def test_it_is_used_in_half_precision_which_wraps_the_optimizer(trained, tmp_path):
    model, _ = trained
    optimizer = model.optimizer
    before, wanted = numbers(model.trainable_variables), averages(model)
    try:
        model.optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        model.optimizer.build(model.trainable_variables)
        with with_moving_average(model):
            used = numbers(model.trainable_variables)
        write_checkpoint(tmp_path / "one", model, {})
        plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
        load_moving_average(plain, [tmp_path / "one"])
        assert_each(numbers(plain.weights), wanted)
    finally:
        model.optimizer = optimizer
    for one, other, old in zip(used, averages(model), before, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.abs(one - old).max() > 1e-3


def test_it_moves_once_for_each_update_that_keras_accumulates():
    halves = Adam(0.1, moving_average=DECAY, gradient_accumulation_steps=2)
    wholes = Adam(0.1, moving_average=DECAY)
    one, other = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    for gradient in ([1.0, -1.0], [0.5, 2.0], [-1.0, 1.0]):
        for _ in range(2):
            halves.apply([keras.ops.convert_to_tensor(gradient)], [one])
        wholes.apply([keras.ops.convert_to_tensor(gradient)], [other])
        ours, theirs = (numbers(each for _, each in o.moving_averages) for o in (halves, wholes))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
