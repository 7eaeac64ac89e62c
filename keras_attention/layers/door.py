"""What a layer is called with is checked at its door, by name; layers call what they own past it."""

import functools
import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.layers.masks import check_mask
from keras_attention.utils.checks import check_numbers, static_shape

# Call arguments that are on, off or, with None, left to Keras.
SWITCHES = (
    *("training", "return_attention_scores", "return_cross_attention_scores"),
    *("use_causal_mask", "reverse"),
)
STATES = ("cache", "memory")
KEYS_AND_VALUES = {"key": "BLNK", "value": "BLNU"}


class Door:
    """Mixin of a layer: refuses wrong call arguments, by their shapes and dtypes, which a graph has, too.

    Attributes:
        call_axes: The tensors that the layer is called with, the first of its `call` first, and a letter
            for each of their axes. Equal letters are equal sizes; "..." stands for any axes.
    """

    call_axes: Mapping[str, str]
    is_called_directly = True  # by the layer that owns it: see `call_part`
    _width: int | None = None  # D, when it is built

    def known_sizes(self) -> dict[str, int | None]:
        """Return the sizes of letters that the layer knows; None before it is built."""
        return {"D": self._width, "N": getattr(self, "num_heads", None)}

    def axes_of(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the `call_axes` for these arguments."""
        return self.call_axes

    def state_axes(self, name: str) -> Mapping[str, str]:
        """Return the tensors of a state, and a letter for each of their axes."""
        return KEYS_AND_VALUES

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind: Any = type(self)
        positional = dict(zip(call_arguments(kind), args, strict=False))
        given = {**positional, **kwargs}
        sizes: dict[str, Any] = {x: size for x, size in self.known_sizes().items() if size}
        for name in SWITCHES:
            if name in given:
                check_switch(name, given[name])
            if name in positional:  # as Keras refuses it
                raise ValueError(
                    f"`{name}` should be passed as a keyword argument: {name}={given[name]!r}"
                )
        # Several rows may share one row of a state, and it has positions of its own.
        states = [name for name in STATES if given.get(name) is not None]
        for name in states:
            check_state(name, given[name], self.state_axes(name), sizes)
        if "start_index" in given:
            check_index("start_index", given["start_index"])
        first = next(iter(self.call_axes))
        for name, axes in self.axes_of(given).items():
            if name not in given or (given[name] is None and name != first):
                continue
            if "mask" in name:
                given[name] = check_mask(name, given[name], "" if states else axes, sizes)
                continue
            tensor = check_numbers(name, given[name], axes, **sizes)
            if axes[-1].isalpha() and "float" not in str(tensor.dtype):
                tensor = ops.cast(tensor, self.compute_dtype)  # type: ignore[attr-defined]
            given[name] = tensor
            shape = static_shape(tensor) or ()
            if axes[-1].isalpha() and 0 in shape[min(1, len(shape) - 1) :]:
                raise ValueError(f"`{name}` must not be empty. Received: shape {shape}")
            if axes[0].isalpha() and not states:
                sizes = {**dict(zip(axes, shape, strict=False)), **sizes}
        # Masks and what follows go by name: Keras adds those that tensors carry by name, too.
        tensors = itertools.takewhile(lambda name: "mask" not in name, positional)
        converted = [given.pop(name) for name in tensors]
        return super().__call__(*converted, *args[len(positional) :], **given)  # type: ignore[misc]


@functools.cache
def call_arguments(kind: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a layer's `call`, in their order."""
    return tuple(inspect.signature(kind.call).parameters)[1:]


def check_switch(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is True, False or None; Keras takes any text for True."""
    is_switch = value is None or isinstance(value, bool | np.bool_)
    if not is_switch and not (isinstance(value, int) and value in (0, 1)):
        raise ValueError(f"`{name}` must be True, False or None. Received: {name}={value!r}")


def check_index(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is a position: an integer of at least 0, or a scalar tensor."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_scalar = "int" in str(getattr(value, "dtype", "")) and static_shape(value) in ((), None)
    if not is_number and not is_scalar:
        raise ValueError(
            f"`{name}` must be an int of at least 0, or a scalar tensor of one. Received: {name}={value!r}"
        )


def check_state(
    name: str, state: Any, axes: Mapping[str, str], sizes: Mapping[str, int | None]
) -> None:
    """Raise a ValueError unless a value holds the tensors of a state."""
    if not isinstance(state, Mapping) or axes.keys() - state.keys():
        parts = " and ".join(f"{part!r} ({', '.join(axes[part])})" for part in axes)
        source = "as `project_key_value` returns it" if "key" in axes else "the state of the cell"
        raise ValueError(
            f"`{name}` must be a dict of {parts}, {source}. Received: {type(state).__name__}"
        )
    for part, letters in axes.items():
        known = {letter: sizes.get(letter) for letter in letters if letter in "ND"}
        check_numbers(f"{name}[{part!r}]", state[part], letters, **known)


def call_part(owner: keras.layers.Layer, part: Any, *inputs: Any, **arguments: Any) -> Any:
    """Return `part(*inputs, **arguments)`, of a layer with tensors that it has made itself.

    Masks, dtypes and `training` are decided at the owner's own call, which also checked what a user gave. So
    the part's `call` is called at once, unless Keras has more to do: see `needs_keras`. Pass `training`.
    Arguments that are None are left out: a user's own layer may not take them.
    """
    arguments = {name: value for name, value in arguments.items() if value is not None}
    return (part if needs_keras(owner, part) else part.call)(*inputs, **arguments)


def needs_keras(owner: keras.layers.Layer, part: Any) -> bool:
    """Whether Keras' `__call__` does something for a part that its owner's call has not done.

    It builds, converts to another dtype, adds a regularizer's loss, calls what a quantized layer computes, or
    forgets in between (`keras.RematScope`); model parallelism finds layouts by the names that it opens. A
    user's own kind of layer may count on all that it does.
    """
    kind = type(part)
    return (
        not getattr(kind, "is_called_directly", False)
        or kind.__call__ not in (Door.__call__, keras.layers.Layer.__call__)
        or not part.built
        or part.dtype_policy is not owner.dtype_policy
        or isinstance(part.dtype_policy, keras.dtype_policies.DTypePolicyMap)
        # Keras decides at each call whether weights are read in the compute dtype.
        or (not (part.autocast and owner.autocast) and part.compute_dtype != part.variable_dtype)
        or part.activity_regularizer is not None
        or part.quantization_mode is not None
        or bool(part._remat_mode)
        or keras.distribution.distribution() is not None
    )
