"""How a layer calls the layers that it owns: past Keras' `__call__`, where they need nothing of it."""

from typing import Any

import keras

from keras_attention.layers.door import Door


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
