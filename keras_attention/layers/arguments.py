"""The arguments that layers and models share: one check for each name, and how a layer keeps them."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_attention.spec.parts import (
    BRANCH_FEED_FORWARDS,
    BRANCHED_DECODERS,
    DECODER_CELLS,
    LAYOUTS,
)
from keras_attention.utils.checks import (
    check_boolean,
    check_choice,
    check_depths,
    check_integer,
    check_number,
)

SIZES = {
    *("vocabulary_size", "hidden_dim", "intermediate_dim", "num_heads", "max_length"),
    *("key_dim", "value_dim", "sliding_window", "attention_window", "target_vocabulary_size"),
}
RATES = {"dropout", "attention_dropout", "activation_dropout"}
SWITCHES = {
    *("normalize_first", "use_attention_bias", "tie_weights", "recompute", "use_bias"),
    *("use_logits_bias", "final_normalization"),
}
EPSILONS = {"epsilon", "layer_norm_epsilon"}
CHOICES = {
    "branch_feed_forward": BRANCH_FEED_FORWARDS,
    "branched_decoder": BRANCHED_DECODERS,
    "decoder_cell": DECODER_CELLS,
    "layout": LAYOUTS,
    "position_layout": LAYOUTS,
}
# Which may be None.
OPTIONAL = {
    *("key_dim", "value_dim", "sliding_window", "attention_window"),
    *("branch_feed_forward", "seed", "target_vocabulary_size", "final_normalization"),
}


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a constructor's `locals()`; raise a ValueError if one that is known is wrong.

    >>> checked({"self": 3, "num_heads": 8, "key_dim": None, "dropout": 0, "kwargs": {}})
    {'num_heads': 8, 'key_dim': None, 'dropout': 0.0}
    """
    others = ("self", "kwargs", "__class__")
    return {name: _checked(name, value) for name, value in arguments.items() if name not in others}


def _checked(name: str, value: Any) -> Any:
    if value is None and name in OPTIONAL:
        return None
    if name == "num_layers":
        return check_depths(name, value)
    if name in SIZES:
        return check_integer(name, value, least=1)
    if name in RATES:
        return check_number(name, value, least=0, below=1)
    if name in SWITCHES:
        return check_boolean(name, value)
    if name in EPSILONS:
        return check_number(name, value, above=0)
    if name in CHOICES:
        return check_choice(name, value, CHOICES[name])
    if name == "seed":
        return check_integer(name, value, least=0)
    if _kind(name) is not None:
        _check_named(name, value)
    return value


def _check_named(name: str, value: Any) -> None:
    """Raise a ValueError unless Keras knows what is named, or it is a function."""
    kind = _kind(name)
    try:
        kind.get(value)
    except (TypeError, ValueError) as error:
        module = kind.__name__.rpartition(".")[-1]
        raise ValueError(
            f"`{name}` must be a name in `keras.{module}`, or one of them, or a function. "
            f"Received: {name}={value!r}"
        ) from error


class Configured:
    """Mixin of a layer: the arguments of its constructor are its attributes, and in its config."""

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        """Make `checked` arguments attributes, and of names of activations or initializers what they name."""
        for name, value in arguments.items():
            kind = _kind(name)
            setattr(self, name, kind.get(value) if kind else value)
        self._arguments = tuple(arguments)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()  # type: ignore[misc]
        for name in self._arguments:
            kind, value = _kind(name), getattr(self, name)
            config[name] = kind.serialize(value) if kind else value
        return config


def _kind(name: str) -> Any:
    """Return Keras' module for what an argument names; None for a plain value."""
    if "initializer" in name:
        return keras.initializers
    return keras.activations if name == "activation" else None
