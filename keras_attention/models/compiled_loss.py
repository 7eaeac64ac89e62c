"""The loss of an update on PyTorch, also as a compiled program: `compile(jit_compile=True)`."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention.training.losses import divided_by
from keras_attention.training.processes import process_count

# Inputs, labels and sample weights of a slice, and what its loss is divided by; None if by its own tokens.
Data = tuple[Any, Any, Any, Any]


def loss_and_logs(model: keras.Model, data: Data) -> tuple[Any, Any]:
    """Return a slice's share of the loss of an update, and what Keras' step returns; metrics are updated."""
    x, y, sample_weight, token_count = data
    shares = model.accumulation_steps * process_count()
    y_pred = model(x, training=True)
    with divided_by(token_count):
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=True) / shares
    rows = next(tensor for tensor in keras.tree.flatten(x) if tensor is not None).shape[0]
    # The tracker takes the mean over rows; the shares are to be summed.
    model._loss_tracker.update_state(ops.stop_gradient(loss) * shares, sample_weight=rows)
    y_pred = keras.tree.map_structure(ops.stop_gradient, y_pred)
    return loss, model.compute_metrics(x, y, y_pred, sample_weight)


class CompiledLoss:
    """`loss_and_logs` on PyTorch as programs of its compiler, one for each shape of a batch.

    The first batch of a shape is computed without a program. This makes Keras' metrics, and says which
    masks dropout draws. Those of later batches are drawn before, from the same seeds, and given to the
    program: a model learns the same with and without a compiler. As on the other backends, what layers are
    told later, such as another rate, counts from the next `compile` on.

    `torch.compile`, which Keras would call, reads the Python code, and stumbles over that of layers. Here
    PyTorch records the operations while the layers run.
    """

    def __init__(self) -> None:
        self._draws: dict[Any, list[Any]] = {}
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(
        self, model: keras.Model, weights: Sequence[keras.Variable], data: Data
    ) -> tuple[Any, Any]:
        """Return what `loss_and_logs` returns, with what the gradient of the loss by the weights needs."""
        from keras_attention.ops.backends.torch_dropout import noted

        leaves = keras.tree.flatten(data)
        tensors = [ops.convert_to_tensor(leaf) for leaf in leaves if leaf is not None]
        kinds = ((tensor.shape, tensor.dtype) for tensor in tensors)
        nothing = (leaf is None for leaf in leaves)
        shape = (process_count(), *map(id, weights), *nothing, *kinds)
        if shape not in self._draws:
            draws: list[Any] = []
            with noted(draws):
                result = loss_and_logs(model, data)
            self._draws[shape] = draws  # Not what an error or Ctrl-C has cut short.
            return result
        masks = [draw.again() for draw in self._draws[shape]]
        if shape not in self._programs:
            self._programs[shape] = _compiled(model, weights, masks, data)
        return self._programs[shape](masks, tensors)


def _compiled(
    model: keras.Model, weights: Sequence[keras.Variable], masks: Sequence[Any], data: Data
) -> Callable[..., tuple[Any, Any]]:
    """Trace and compile `loss_and_logs`; the program takes masks of dropout and the tensors of a batch."""
    from torch._dynamo import lookup_backend
    from torch.fx.experimental.proxy_tensor import make_fx

    from keras_attention.ops.backends import torch_dropout, torch_known

    all_variables = (*weights, *model.variables, *model.metrics_variables)
    variables = list({id(variable): variable for variable in all_variables}.values())
    leaves = keras.tree.flatten(data)
    written: list[keras.Variable] = []
    logs: Any = None

    def inputs(masks: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        return [*map(torch_known.tensor_of, variables), *masks, *tensors]

    def traced(*tensors: Any) -> list[Any]:
        nonlocal logs
        rest = iter(tensors)
        values = [next(rest) for _ in variables]
        given = torch_dropout.given([next(rest) for _ in masks])
        batch = keras.tree.pack_sequence_as(
            data, [None if leaf is None else next(rest) for leaf in leaves]
        )
        mapping = list(zip(variables, values, strict=True))
        scope = keras.StatelessScope(mapping, collect_losses=True)
        with torch_known.known({}), given, scope:
            loss, logs = loss_and_logs(model, batch)
        new = [scope.get_current_value(variable) for variable in variables]
        is_new = [value is not old for value, old in zip(new, values, strict=True)]
        written.extend(itertools.compress(variables, is_new))
        return [loss, *keras.tree.flatten(logs), *itertools.compress(new, is_new)]

    example = inputs(masks, [ops.convert_to_tensor(leaf) for leaf in leaves if leaf is not None])
    try:
        graph = make_fx(traced)(*example)
        program = lookup_backend("inductor")(graph, example)
    except Exception as error:
        # Keras puts a heading above the reason, and writes that in bold.
        lines = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
        reasons = [line for line in lines if line and not line.startswith("Exception enc")]
        raise RuntimeError(
            f"jit_compile=True: PyTorch cannot compile an update of {model.name}. Compile the model with "
            "jit_compile=False, PyTorch's default, or leave out what needs the values of tensors, as "
            "`keras.layers.Dropout` does (`keras_attention.layers.dropout.Dropout` does not). "
            f"PyTorch says: {(reasons or [type(error).__name__])[0]}"
        ) from error

    def compute(masks: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, Any]:
        loss, *others = program(*inputs(masks, tensors))
        results = others[: len(others) - len(written)]
        for variable, value in zip(written, others[len(results) :], strict=True):
            variable.assign(value)
        return loss, keras.tree.pack_sequence_as(logs, results)

    return compute
