"""A Transformer as ONNX graphs, written from its spec, not traced: each backend gives the same file.

Shape letters: B sentences, S source, T target positions that are read, P target positions read before,
N heads, K key_dim, U value_dim, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.spec.parts import (
    AttentionSpec,
    BlockSpec,
    DenseSpec,
    EmbeddingSpec,
    FeedForwardSpec,
    NormSpec,
    SSRUSpec,
    StackSpec,
)
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.lazily import needed

# LayerNormalization is there from 17 on. onnxruntime and onnxruntime-web read these versions since 2022.
OPSET, IR_VERSION = 17, 8
# Added to the score of a position that may not be attended to; its weight is exactly zero.
MASKED = -1e9
# An activation of a spec as one operation of ONNX, with Keras' settings; `_Writer.activation` has the others.
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
IDS, MASK, ENCODED = "input_ids", "attention_mask", "encoder_hidden_states"
SOURCE_MASK, IS_CONTINUED = f"encoder_{MASK}", "use_cache_branch"


def library() -> Any:
    """Return onnx."""
    message = "The export needs onnx, which is not installed: pip install 'onnx>=1.20'."
    return needed("onnx", message)


def states_of(spec: TransformerSpec) -> dict[str, tuple[Any, ...]]:
    """Return the names of what a decoder keeps, and their shapes: a string is a size that varies."""
    batch, source, past = "batch_size", "encoder_sequence_length", "past_decoder_sequence_length"
    shapes: dict[str, tuple[Any, ...]] = {}
    for i, block in enumerate(spec.decoder.blocks):
        if isinstance(block.self_attention, SSRUSpec):
            shapes[f"{i}.decoder.state"] = (batch, past, spec.hidden_dim)
        for attention in block.attentions:
            kind, length = "decoder", past
            if attention is block.cross_attention:
                kind, length = "encoder", source
            for name, dense in (("key", attention.key), ("value", attention.value)):
                heads, width = dense.kernel.shape[1:]
                shapes[f"{i}.{kind}.{name}"] = (batch, heads, length, width)
    return shapes


def encoder_model(spec: TransformerSpec, max_length: int, metadata: dict[str, str]) -> Any:
    """Return the encoder: `input_ids`, `attention_mask` (B, S) to `last_hidden_state` (B, S, D).

    The spec is of NumPy arrays; `metadata` are texts to write into the file.
    """
    onnx = library()
    weights: dict[str, np.ndarray] = {}
    writer = _Writer(spec, max_length, weights)
    writer.encoder("last_hidden_state")
    shape = ("batch_size", "encoder_sequence_length")
    long, single = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    value = onnx.helper.make_tensor_value_info
    return _model(
        "encoder",
        writer.nodes,
        [value(IDS, long, shape), value(MASK, long, shape)],
        [value("last_hidden_state", single, (*shape, spec.hidden_dim))],
        weights,
        metadata,
    )


def decoder_model(spec: TransformerSpec, max_length: int, metadata: dict[str, str]) -> Any:
    """Return the decoder, which begins or, with `use_cache_branch`, goes on from `past_key_values`.

    `input_ids` (B, T) to `logits` (B, T, V), and the new `present` keys and values. Those of the source are
    computed at the beginning; one that goes on reads them again, and returns empty ones in their place.
    """
    onnx = library()
    weights: dict[str, np.ndarray] = {}
    long, single = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    value = onnx.helper.make_tensor_value_info
    states = states_of(spec)
    length = "decoder_sequence_length"
    logits = ("batch_size", length, spec.target_vocabulary_size)
    outputs = {"logits": logits, **{f"present.{name}": shape for name, shape in states.items()}}
    branches = {}
    for branch, is_continued in (("then", True), ("else", False)):
        writer = _Writer(spec, max_length, weights, f"{branch}/", is_continued)
        names = writer.decoder()
        branches[f"{branch}_branch"] = onnx.helper.make_graph(
            writer.nodes, branch, [], [value(name, single, None) for name in names]
        )
    source = ("batch_size", "encoder_sequence_length")
    # What varies in a present state is the sum of past and new positions.
    shown = {
        name: tuple(f"{name}.{i}" if isinstance(d, str) and i else d for i, d in enumerate(shape))
        for name, shape in outputs.items()
    }
    return _model(
        "decoder",
        [onnx.helper.make_node("If", [IS_CONTINUED], list(outputs), name="If", **branches)],
        [
            value(SOURCE_MASK, long, source),
            value(IDS, long, ("batch_size", length)),
            value(ENCODED, single, (*source, spec.hidden_dim)),
            *(value(f"past_key_values.{name}", single, shape) for name, shape in states.items()),
            value(IS_CONTINUED, onnx.TensorProto.BOOL, (1,)),
        ],
        [value(name, single, shape) for name, shape in shown.items()],
        weights,
        metadata,
    )


def _model(
    name: str,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: dict[str, np.ndarray],
    metadata: dict[str, str],
) -> Any:
    onnx = library()
    tensors = [onnx.numpy_helper.from_array(array, each) for each, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, name, inputs, outputs, tensors)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(
        graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="keras_attention"
    )
    onnx.helper.set_model_props(model, metadata)
    return model


class _Writer:
    """Writes the nodes of a graph.

    Args:
        spec: The model, of NumPy arrays.
        max_length: Number of positions.
        weights: Gets the weights by name.
        prefix: Of the nodes' names.
        is_continued: Whether a decoder goes on from what it kept.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        max_length: int,
        weights: dict[str, np.ndarray],
        prefix: str = "",
        is_continued: bool = False,
    ) -> None:
        self._onnx = library()
        self._spec, self._max_length = spec, max_length
        self._weights, self._prefix, self._is_continued = weights, prefix, is_continued
        self._kept: dict[str, str] = {}  # what the blocks keep, by the names of `states_of`
        self.nodes: list[Any] = []

    def _add(self, operation: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its output; an input that has no name is a constant."""
        name = name or f"{self._prefix}{operation}_{len(self.nodes)}"
        given = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        node = self._onnx.helper.make_node(operation, given, [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype("float32" if array.dtype.kind == "f" else "int64")
        return self._weight(f"constant {array.dtype} {array.tolist()}", array)

    def _weight(self, name: str, array: np.ndarray) -> str:
        self._weights[name] = np.asarray(array, order="C")
        return name

    def _padding(self, mask: str) -> str:
        """Return the bias (B, 1, 1, S) that hides padding."""
        is_real = self._add("Cast", mask, to=self._onnx.TensorProto.FLOAT)
        return self._add(
            "Unsqueeze", self._add("Mul", self._add("Sub", 1.0, is_real), MASKED), [1, 2]
        )

    def encoder(self, output: str) -> None:
        """Write the encoder, whose output gets this name."""
        stack, padding = self._spec.encoder, self._padding(MASK)
        length = self._length(IDS, 1)
        x = self._embedded(self._spec.embedding, "embedding", stack, "encoder", 0, length)
        for i, block in enumerate(stack.blocks):
            x = self._block(x, block, "encoder", i, padding)
        x = self._normalized(x, stack.norm, "encoder.norm")
        self._add("Identity", x, name=output)

    def decoder(self) -> list[str]:
        """Write the decoder; return the names of the logits and of what it keeps."""
        spec, states = self._spec, states_of(self._spec)
        past: int | str = 0
        if self._is_continued:
            first = next(name for name in states if ".decoder." in name)
            past = self._length(f"past_key_values.{first}", 1 if ".state" in first else 2)
        total = self._add("Add", past, self._length(IDS, 1))
        padding = self._padding(SOURCE_MASK)
        bias = self._causal_bias(past, total)
        table = "embedding" if spec.target_embedding is None else "target_embedding"
        x = self._embedded(spec.output_embedding, table, spec.decoder, "decoder", past, total)
        for i, block in enumerate(spec.decoder.blocks):
            x = self._block(x, block, "decoder", i, bias, padding)
        x = self._normalized(x, spec.decoder.norm, "decoder.norm")
        return [self._logits(x, table), *(self._kept[name] for name in states)]

    def _length(self, tensor: str, axis: int) -> str:
        """Return the size of an axis, a number."""
        return self._add("Squeeze", self._add("Shape", tensor, start=axis, end=axis + 1), [0])

    def _causal_bias(self, past: int | str, total: str) -> str:
        """Return (T, P + T), 0 or `MASKED`: which positions may see which."""
        columns = self._add("Range", 0, total, 1)
        rows = self._add("Unsqueeze", self._add("Range", past, total, 1), [1])
        return self._add("Where", self._add("Less", rows, columns), MASKED, 0.0)

    def _embedded(
        self,
        table: EmbeddingSpec,
        path: str,
        stack: StackSpec,
        kind: str,
        past: int | str,
        total: str,
    ) -> str:
        """Return rows times sqrt(D), zero for padding, plus positions; of one beyond the last is an error."""
        rows = self._add("Gather", self._weight(f"{path}.embeddings", table.embeddings), IDS)
        is_token = self._add("Not", self._add("Equal", IDS, table.pad_token_id))
        scale = self._add("Cast", is_token, to=self._onnx.TensorProto.FLOAT)
        scale = self._add("Mul", scale, math.sqrt(self._spec.hidden_dim))
        rows = self._add("Mul", rows, self._add("Unsqueeze", scale, [-1]))
        positions = self._spec.positions(stack, self._max_length)
        # (1, T): onnxruntime would make a slice of a plain range, which has no error beyond its end.
        places = self._add("Unsqueeze", self._add("Range", past, total, 1), [0])
        added = self._add("Gather", self._weight(f"{kind}.positions", positions), places)
        return self._add("Add", rows, added)

    def _block(
        self,
        x: str,
        block: BlockSpec,
        kind: str,
        i: int,
        bias: str,
        padding: str = "",
    ) -> str:
        """Write a block; `bias` is that of its own sequence, `padding` that of the source."""
        for name, write in (
            ("self_attention", functools.partial(self._own, i=i, bias=bias)),
            ("cross_attention", functools.partial(self._cross, i=i, padding=padding)),
            ("feed_forward", self._network),
        ):
            part, norm = getattr(block, name), getattr(block, f"{name}_norm")
            if part is None:
                continue
            path, entered = f"{kind}.blocks.{i}.{name}", x
            if block.normalize_first:
                entered = self._normalized(x, norm, f"{path}_norm")
            x = self._add("Add", x, write(entered, part, path))
            if not block.normalize_first:
                x = self._normalized(x, norm, f"{path}_norm")
        return x

    def _own(
        self,
        x: str,
        part: AttentionSpec | SSRUSpec,
        path: str,
        i: int,
        bias: str,
    ) -> str:
        """Write the self-attention or the cell of block i."""
        if isinstance(part, SSRUSpec):
            state = f"{i}.decoder.state"
            before = f"past_key_values.{state}" if self._is_continued else None
            states = self._states(x, part, path, before)
            self._with_past(state, states, 1)
            return self._add("Relu", states)
        key, value = (
            self._with_past(f"{i}.decoder.{name}", self._heads(x, dense, f"{path}.{name}"), 2)
            for name, dense in (("key", part.key), ("value", part.value))
        )
        return self._attended(x, key, value, bias, part, path)

    def _with_past(self, state: str, new: str, axis: int) -> str:
        """Return a state's earlier positions and new ones, which are kept; an encoder's nobody asks for."""
        if self._is_continued:
            new = self._add("Concat", f"past_key_values.{state}", new, axis=axis)
        self._kept[state] = new
        return new

    def _cross(self, x: str, part: AttentionSpec, path: str, i: int, padding: str) -> str:
        """Write the attention of block i to the encoder's output."""
        found = []
        for name, dense in (("key", part.key), ("value", part.value)):
            state = f"{i}.encoder.{name}"
            if self._is_continued:
                found.append(f"past_key_values.{state}")
                heads, width = dense.kernel.shape[1:]
                self._kept[state] = self._add("ConstantOfShape", [0, heads, 1, width])
            else:
                found.append(self._heads(ENCODED, dense, f"{path}.{name}"))
                self._kept[state] = found[-1]
        key, value = found
        return self._attended(x, key, value, padding, part, path)

    def _linear(
        self, x: str, dense: DenseSpec, path: str, factor: float = 1.0, inputs: int = 1
    ) -> str:
        """`factor (x kernel + bias)`, of a kernel whose first `inputs` axes are the input's."""
        rows = math.prod(dense.kernel.shape[:inputs])
        kernel = dense.kernel.reshape(rows, -1) * np.float32(factor)
        x = self._add("MatMul", x, self._weight(f"{path}.kernel", kernel))
        if dense.bias is None:
            return x
        bias = dense.bias.reshape(-1) * np.float32(factor)
        return self._add("Add", x, self._weight(f"{path}.bias", bias))

    def _heads(self, x: str, dense: DenseSpec, path: str, factor: float = 1.0) -> str:
        """From (B, T, D) to (B, N, T, d)."""
        projected = self._linear(x, dense, path, factor)
        split = self._add("Reshape", projected, [0, 0, *dense.kernel.shape[1:]])
        return self._add("Transpose", split, perm=[0, 2, 1, 3])

    def _attended(
        self, x: str, key: str, value: str, bias: str, part: AttentionSpec, path: str
    ) -> str:
        """Section 3.2.2: (B, T, D) of queries from x."""
        query = self._heads(x, part.query, f"{path}.query", part.query.kernel.shape[2] ** -0.5)
        scores = self._add("MatMul", query, self._add("Transpose", key, perm=[0, 1, 3, 2]))
        shares = self._add("Softmax", self._add("Add", scores, bias), axis=-1)
        heads = self._add("MatMul", shares, value)
        joined = self._add("Transpose", heads, perm=[0, 2, 1, 3])
        joined = self._add("Reshape", joined, [0, 0, math.prod(part.output.kernel.shape[:2])])
        return self._linear(joined, part.output, f"{path}.output", inputs=2)

    def _states(self, x: str, part: SSRUSpec, path: str, before: str | None) -> str:
        """Return an SSRU's states (B, T, D), from the last one of `before` (B, P, D) or from zeros."""
        forget = self._add("Sigmoid", self._linear(x, part.forget, f"{path}.forget"))
        new = self._linear(x, part.inner, f"{path}.inner")
        new = self._add("Mul", self._add("Sub", 1.0, forget), new)
        if before is None:
            first = self._add("Mul", self._add("Gather", new, 0, axis=1), 0.0)
        else:
            first = self._add("Gather", before, -1, axis=1)
        helper, single = self._onnx.helper, self._onnx.TensorProto.FLOAT
        own = f"{self._prefix}Scan_{len(self.nodes)}"
        # c_t = f_t c_(t-1) + (1 - f_t) x_t, which is the next state and an output.
        state, gate, added, product, next_state, output = (
            f"{own}/{name}" for name in ("c", "f", "x", "fc", "next", "output")
        )
        size = ["batch_size", self._spec.hidden_dim]
        values = [
            [helper.make_tensor_value_info(name, single, size) for name in names]
            for names in ((state, gate, added), (next_state, output))
        ]
        inner = [
            helper.make_node("Mul", [gate, state], [product]),
            helper.make_node("Add", [product, added], [next_state]),
            helper.make_node("Identity", [next_state], [output]),
        ]
        body = helper.make_graph(inner, "cell", *values)
        read, written = [first, forget, new], [f"{own}/last", own]
        axes = {"num_scan_inputs": 2, "scan_input_axes": [1, 1], "scan_output_axes": [1]}
        self.nodes.append(helper.make_node("Scan", read, written, body=body, **axes))
        return own

    def _network(self, x: str, part: FeedForwardSpec, path: str) -> str:
        hidden = self._activated(self._linear(x, part.inner, f"{path}.inner"), part.activation)
        if part.gate is not None:
            hidden = self._add("Mul", hidden, self._linear(x, part.gate, f"{path}.gate"))
        return self._linear(hidden, part.outer, f"{path}.outer")

    def _activated(self, x: str, name: str) -> str:
        if name in ACTIVATIONS:
            operation, settings = ACTIVATIONS[name]
            return self._add(operation, x, **settings)
        if name == "relu6":
            return self._add("Min", self._add("Relu", x), 6.0)
        if name == "silu":
            return self._add("Mul", x, self._add("Sigmoid", x))
        if name == "mish":
            return self._add("Mul", x, self._add("Tanh", self._add("Softplus", x)))
        if name == "gelu":
            erf = self._add("Erf", self._add("Mul", x, math.sqrt(0.5)))
            return self._add("Mul", self._add("Mul", x, 0.5), self._add("Add", erf, 1.0))
        return x  # "linear"

    def _normalized(self, x: str, norm: NormSpec | None, path: str) -> str:
        """Layer normalisation or RMSNorm; none if `norm` is None."""
        if norm is None:
            return x
        gamma = self._weight(f"{path}.gamma", norm.gamma)
        if norm.beta is None:
            squares = self._add("ReduceMean", self._add("Mul", x, x), axes=[-1])
            root = self._add("Sqrt", self._add("Add", squares, norm.epsilon))
            return self._add("Mul", self._add("Div", x, root), gamma)
        beta = self._weight(f"{path}.beta", norm.beta)
        return self._add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=norm.epsilon)

    def _logits(self, x: str, path: str) -> str:
        """From (B, T, D) to (B, T, V), with the bias and what is never produced."""
        spec, table = self._spec, self._spec.output_embedding
        is_tied = table.reverse_embeddings is None
        matrix = self._weight(
            f"{path}.embeddings" if is_tied else f"{path}.reverse_embeddings",
            table.embeddings if is_tied else table.reverse_embeddings,
        )
        bias = spec.decoding_bias()
        added = [] if bias is None else [self._weight("decoding_bias", bias)]
        rows = self._add("Reshape", x, [-1, spec.hidden_dim])
        logits = self._add("Gemm", rows, matrix, *added, transB=int(is_tied))
        shape = self._add("Concat", self._add("Shape", IDS), [spec.target_vocabulary_size], axis=0)
        return self._add("Reshape", logits, shape)
