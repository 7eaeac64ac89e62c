"""The arguments of layers and models: checked by their annotations, and kept."""

from collections.abc import Mapping
from typing import Annotated, Any

import keras

from keras_attention.utils.arguments import check, rules


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a constructor's `locals()`; raise a ValueError if one is not as annotated.

    >>> from annotated_types import Ge
    >>> class Halves:
    ...     def __init__(self, num_heads: Annotated[int, Ge(1)]):
    ...         super().__init__()
    ...         self.arguments = checked(locals())
    >>> Halves(8).arguments
    {'num_heads': 8}
    """
    known = rules(arguments["__class__"].__init__)
    others = ("self", "kwargs", "__class__")
    return {
        name: check(name, value, known[name])
        for name, value in arguments.items()
        if name not in others
    }


def without_branches(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved config without two options that plain layers and models had, where both were off.

    >>> without_branches({"num_heads": 2, "branch_feed_forward": None, "branched_decoder": "cross"})
    {'num_heads': 2}
    """
    gone = {"branch_feed_forward", "branched_decoder"}
    is_plain = config.get("branch_feed_forward", "on") is None
    return {name: config[name] for name in config if not (is_plain and name in gone)}


def activation_config(activation: Any) -> Any:
    """Return how Keras saves an activation: its name, or the config of one's own.

    Keras' own are named here: `keras.activations.serialize` imports TensorFlow wherever it is installed.

    >>> activation_config(keras.activations.silu), activation_config(None)
    ('silu', 'linear')
    """
    function = keras.activations.get(activation)
    name = getattr(function, "__name__", "")
    is_known = getattr(keras.activations, name, None) is function
    return name if is_known else keras.activations.serialize(function)


def _check_named(name: str, value: Any) -> Any:
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
    return value


# An activation or an initializer.
Named = Annotated[Any, _check_named]


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
