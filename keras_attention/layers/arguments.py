"""The arguments of layers and models: checked by their annotations, and kept."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import keras

from keras_attention.utils.arguments import check, kind_of_name, meanings, rules, shown_type
from keras_attention.utils.checks import did_you_mean

# What `keras.Model` and `keras.layers.Layer` take as well.
KERAS_ARGUMENTS = ("name", "dtype", "trainable", "activity_regularizer", "autocast")
Constructor = TypeVar("Constructor", bound=Callable[..., Any])
Options = TypeVar("Options")


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a constructor's `locals()`; raise a ValueError if one is not as annotated.

    >>> from keras_attention.utils.arguments import Count
    >>> class Halves:
    ...     def __init__(self, num_heads: Count):
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


class Configured:
    """Mixin of a layer: the arguments of its constructor are its attributes, and in its config."""

    _arguments: Mapping[str, Any]

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        """Make `checked` arguments attributes, and of names of activations or initializers what they name."""
        kinds = {name: kind_of_name(name) for name in arguments}
        self._arguments = {
            name: kinds[name].get(value) if kinds[name] else value
            for name, value in arguments.items()
        }
        for name, value in self._arguments.items():
            setattr(self, name, value)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._kept()}  # type: ignore[misc]

    def _kept(self) -> dict[str, Any]:
        """Return the arguments as a config has them."""
        return {name: _saved(name, value) for name, value in self._arguments.items()}


def _saved(name: str, value: Any) -> Any:
    if name == "activation":
        return activation_config(value)
    return keras.initializers.serialize(value) if "initializer" in name else value


def takes(options: type) -> Callable[[Constructor], Constructor]:
    """Decorate a constructor whose `**kwargs` hold fields of a dataclass: its signature and help show them.

    >>> from keras_attention.spec.options import BlockOptions
    >>> @takes(BlockOptions)
    ... def build(num_heads: int, **kwargs: Any): ...
    >>> [*inspect.signature(build).parameters][:3], inspect.signature(build).parameters["dropout"].default
    (['num_heads', 'intermediate_dim', 'key_dim'], 0.1)
    """

    def shown(function: Constructor) -> Constructor:
        known, given = rules(options), inspect.signature(function).parameters
        *own, others = [
            one.replace(annotation=shown_type(known.get(one.name, one.annotation)))
            for one in given.values()
        ]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(options, name, inspect.Parameter.empty),
                annotation=shown_type(known[name]),
            )
            for name in known
            if name not in given
        ]
        told = "".join(f"    {name}: {text}\n" for name, text in meanings(options).items())
        vars(function)["__signature__"] = inspect.Signature([*own, *more, others])
        function.__annotations__ |= known
        function.__doc__ = f"Take the fields of `{options.__name__}`.\n\nArgs:\n{told}"
        return function

    return shown


def options_in(
    kind: Callable[..., Options], arguments: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """Return the fields of a dataclass in a constructor's `locals()`, and the `kwargs` that are Keras'."""
    given, fields = {**arguments, **arguments["kwargs"]}, rules(kind).keys()
    others = {name: value for name, value in arguments["kwargs"].items() if name not in fields}
    for name in others:
        if name not in KERAS_ARGUMENTS:
            hint = did_you_mean(name, (*fields, *KERAS_ARGUMENTS))
            raise ValueError(f"{type(arguments['self']).__name__} has no argument {name!r}.{hint}")
    return kind(**{name: given[name] for name in fields & given.keys()}), others


def config_of_before(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved config of a block, a stack or a model as its constructor takes it today.

    Plain ones had two options of the Weighted Transformer, which were off; and a block's window had the name
    that it has in Keras' attention.

    >>> config_of_before({"sliding_window": 2, "branch_feed_forward": None, "branched_decoder": "cross"})
    {'attention_window': 2}
    """
    gone = {"branch_feed_forward", "branched_decoder"}
    is_plain = config.get("branch_feed_forward", "on") is None
    kept = {name: config[name] for name in config if not (is_plain and name in gone)}
    return {{"sliding_window": "attention_window"}.get(name, name): kept[name] for name in kept}
