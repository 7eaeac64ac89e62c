"""The operations of `forward.py` as nodes of an ONNX graph.

Shape letters: B sentences, T target positions that are read, P target positions read before, D hidden_dim.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_attention.engine.operations import Operations
from keras_attention.interop.onnx_model import IDS
from keras_attention.spec import TransformerSpec
from keras_attention.utils.lazily import needed

# An activation of a spec as one operation of ONNX, with Keras' settings; `OnnxOperations` has the others.
ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1.0 / 6.0, "beta": 0.5}),
    "hard_silu": ("HardSwish", {}),
}
# Functions of `keras.ops` that are one operation of ONNX.
FUNCTIONS = {"add": "Add", "matmul": "MatMul", "relu": "Relu", "softmax": "Softmax"}


def library() -> Any:
    """Return onnx."""
    message = "The export needs onnx, which is not installed: pip install 'onnx>=1.20'."
    return needed("onnx", message)


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """What a node gives, an input or a weight: its name in a graph, and a weight's numbers."""

    graph: Graph
    name: str
    array: np.ndarray | None = None

    def __add__(self, other: Any) -> Value:
        return self.graph.node("Add", self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.node("Mul", self, other)


class Graph:
    """A graph that is written. It has `keras.ops`, as far as `forward` needs them, each of which adds nodes.

    `weights` gets those that nodes read, by name; `prefix` is that of the nodes' names.
    """

    def __init__(self, weights: dict[str, np.ndarray], prefix: str = "") -> None:
        self.onnx = library()
        self.weights, self.prefix = weights, prefix
        self.nodes: list[Any] = []

    def node(
        self, operation: str, *inputs: Any, name: str = "", outputs: int = 1, **attributes: Any
    ) -> Any:
        """Add a node, and return its output or outputs; an input that is no `Value` is a constant."""
        name = name or f"{self.prefix}{operation}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        given = [x if isinstance(x, Value) else self.constant(x) for x in inputs]
        self.weights.update((x.name, x.array) for x in given if x.array is not None)
        read = [x.name for x in given]
        self.nodes.append(
            self.onnx.helper.make_node(operation, read, names, name=name, **attributes)
        )
        values = [Value(self, each) for each in names]
        return values[0] if outputs == 1 else values

    def constant(self, value: Any, name: str = "") -> Value:
        array = np.asarray(value, order="C")
        array = array.astype("float32" if array.dtype.kind == "f" else "int64")
        return Value(self, name or f"constant {array.dtype} {array.tolist()}", array)

    def named(self, tree: Any, path: str = "") -> Any:
        """Return weights, arrays in named tuples, as constants that are called by their places."""
        if tree is None or isinstance(tree, np.ndarray):
            return None if tree is None else self.constant(tree, path)
        names = getattr(tree, "_fields", range(len(tree)))
        paths = [f"{path}.{name}".lstrip(".") for name in names]
        parts = map(self.named, tree, paths)
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)

    def length(self, x: Value, axis: int) -> Value:
        """Return the size of an axis, (1,)."""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self.node, FUNCTIONS[name])

    def shape(self, x: Value) -> list[Value]:
        return [self.length(x, 0)]  # All that is asked for.

    def reshape(self, x: Value, sizes: Sequence[Any]) -> Value:
        if any(isinstance(size, Value) for size in sizes):
            sizes = [size if isinstance(size, Value) else [size] for size in sizes]
            return self.node("Reshape", x, self.node("Concat", *sizes, axis=0))
        return self.node("Reshape", x, list(sizes))

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        return self.node("Transpose", x, perm=list(axes))

    def cast(self, x: Value, dtype: str) -> Value:
        return x  # All is float32.

    def layer_normalization(
        self, x: Value, gamma: Value, beta: Value, axis: int, epsilon: float
    ) -> Value:
        return self.node("LayerNormalization", x, gamma, beta, axis=axis, epsilon=epsilon)

    def rms_normalization(self, x: Value, gamma: Value, axis: int, epsilon: float) -> Value:
        root = self.node("Sqrt", self.node("ReduceMean", x * x, axes=[axis]) + epsilon)
        return self.node("Div", x, root) * gamma

    def split(self, x: Value, number: int, axis: int) -> list[Value]:
        return self.node("Split", x, outputs=number, axis=axis)


class OnnxOperations(Operations):
    """`Operations` that add nodes to a graph; `mask` is the input that says which source tokens are real."""

    def __init__(self, spec: TransformerSpec, graph: Graph, mask: str) -> None:
        super().__init__(spec, "float32")
        self.ops, self._mask = graph, Value(graph, mask)

    def padding_bias(self, token_ids: Any) -> Any:
        node = self.ops.node
        is_real = node("Cast", self._mask, to=self.ops.onnx.TensorProto.FLOAT)
        return node("Unsqueeze", node("Mul", node("Sub", 1.0, is_real), self.masked), [1, 2])

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        node = self.ops.node
        is_token = node("Not", node("Equal", token_ids, self.spec.pad_token_id))
        scale = node("Cast", is_token, to=self.ops.onnx.TensorProto.FLOAT)
        scale = node("Mul", scale, math.sqrt(self.spec.hidden_dim))
        rows = node("Gather", table, token_ids) * node("Unsqueeze", scale, [-1])
        return self.ops.reshape(rows + positions, (-1, self.spec.hidden_dim))

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        number, parts = self.spec.num_heads, [x]
        if len(widths) > 1:
            sizes = [number * width for width in widths]
            parts = self.ops.node("Split", x, sizes, outputs=len(widths), axis=-1)
        return [
            self.ops.transpose(self.ops.reshape(part, (num_rows, -1, number, width)), (0, 2, 1, 3))
            for part, width in zip(parts, widths, strict=True)
        ]

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        return new if buffer is None else self.ops.node("Concat", buffer, new, axis=2)

    def cell(self, projected: Any, state: Any, parents: Any) -> Any:
        """Return the states (B, T, D) after tokens in a row, from the last of `state` (B, P, D) or zeros."""
        node, width = self.ops.node, self.spec.hidden_dim
        rows = self.ops.length(Value(self.ops, IDS), 0)
        both = self.ops.reshape(projected, (rows, -1, 2 * width))
        inputs, gates = node("Split", both, outputs=2, axis=-1)
        forget = node("Sigmoid", gates)
        new = node("Mul", node("Sub", 1.0, forget), inputs)
        if state is None:
            first = node("Mul", node("Gather", new, 0, axis=1), 0.0)
        else:
            first = node("Gather", state, -1, axis=1)
        helper, single = self.ops.onnx.helper, self.ops.onnx.TensorProto.FLOAT
        own = f"{self.ops.prefix}Scan_{len(self.ops.nodes)}"
        # c_t = f_t c_(t-1) + (1 - f_t) x_t, which is the next state and an output.
        last, gate, added, product, following, output = (
            f"{own}/{name}" for name in ("c", "f", "x", "fc", "next", "output")
        )
        values = [
            [helper.make_tensor_value_info(name, single, ["batch_size", width]) for name in names]
            for names in ((last, gate, added), (following, output))
        ]
        inner = [
            helper.make_node("Mul", [gate, last], [product]),
            helper.make_node("Add", [product, added], [following]),
            helper.make_node("Identity", [following], [output]),
        ]
        body = helper.make_graph(inner, "cell", *values)
        axes = {"num_scan_inputs": 2, "scan_input_axes": [1, 1], "scan_output_axes": [1]}
        return node("Scan", first, forget, new, name=own, outputs=2, body=body, **axes)[1]

    def activation(self, name: str) -> Callable[[Any], Any]:
        node = self.ops.node
        if name in ACTIVATIONS:
            operation, settings = ACTIVATIONS[name]
            return lambda x: node(operation, x, **settings)
        return {
            "linear": lambda x: x,
            "relu6": lambda x: node("Min", node("Relu", x), 6.0),
            "silu": lambda x: x * node("Sigmoid", x),
            "mish": lambda x: x * node("Tanh", node("Softplus", x)),
            "gelu": lambda x: x * 0.5 * (node("Erf", x * math.sqrt(0.5)) + 1.0),
        }[name]

    def logits(self, x: Any, table: Any, softmax: Any) -> Any:
        matrix, bias = softmax
        kernel = table if matrix is None else matrix.kernel
        added = [] if bias is None else [bias]
        return self.ops.node("Gemm", x, kernel, *added, transB=int(matrix is None))
