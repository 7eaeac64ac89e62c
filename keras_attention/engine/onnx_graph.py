"""A Transformer as ONNX graphs, written by `forward.py` over `OnnxOperations`, which add nodes.

They are written from the spec, not traced: each backend gives the same file.

Shape letters: B sentences, S source, T target positions that are read, P target positions read before,
D hidden_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.engine.forward import Step, decode, encoded, memory_of
from keras_attention.engine.numpy import NumPyOperations
from keras_attention.engine.onnx_operations import Graph, OnnxOperations, Value, library
from keras_attention.interop.onnx_model import ENCODED, IDS, IS_CONTINUED, MASK, SOURCE_MASK
from keras_attention.spec import SSRUSpec, TransformerSpec

# LayerNormalization is there from 17 on. onnxruntime and onnxruntime-web read these versions since 2022.
OPSET, IR_VERSION = 17, 8


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
    graph = Graph({})
    operations, ids = OnnxOperations(spec, graph, MASK), Value(graph, IDS)
    weights = graph.named(NumPyOperations(spec, "float32").prepare(spec))
    positions = _positions(graph, spec, "encoder", max_length, [0], graph.length(ids, 1))
    x = encoded(operations, weights, ids, positions, operations.padding_bias(ids))
    x = graph.reshape(x, (graph.length(ids, 0), -1, spec.hidden_dim))
    graph.node("Identity", x, name="last_hidden_state")
    shape = ("batch_size", "encoder_sequence_length")
    long, single = graph.onnx.TensorProto.INT64, graph.onnx.TensorProto.FLOAT
    value = graph.onnx.helper.make_tensor_value_info
    return _model(
        "encoder",
        graph.nodes,
        [value(IDS, long, shape), value(MASK, long, shape)],
        [value("last_hidden_state", single, (*shape, spec.hidden_dim))],
        graph.weights,
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
    prepared = NumPyOperations(spec, "float32").prepare(spec)
    branches = {}
    for branch, is_continued in (("then", True), ("else", False)):
        graph = Graph(weights, f"{branch}/")
        found = _decoded(graph, spec, graph.named(prepared), max_length, is_continued)
        branches[f"{branch}_branch"] = onnx.helper.make_graph(
            graph.nodes, branch, [], [value(each.name, single, None) for each in found]
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


def _decoded(
    graph: Graph, spec: TransformerSpec, weights: Any, max_length: int, is_continued: bool
) -> list[Value]:
    """Write the decoder; return the logits and what it keeps, in the order of `states_of`."""
    node, states = graph.node, states_of(spec)
    past: dict[str, Any] = {
        name: Value(graph, f"past_key_values.{name}") if is_continued else None for name in states
    }
    operations, ids = OnnxOperations(spec, graph, SOURCE_MASK), Value(graph, IDS)
    rows, before = graph.length(ids, 0), graph.constant([0])
    if is_continued:
        first = next(name for name in states if ".decoder." in name)
        before = graph.length(past[first], 1 if ".state" in first else 2)
    total = before + graph.length(ids, 1)
    # Which positions may see which, (T, P + T).
    columns, own = _range(graph, [0], total), _range(graph, before, total)
    bias = node("Where", node("Less", node("Unsqueeze", own, [1]), columns), operations.masked, 0.0)
    positions = _positions(graph, spec, "decoder", max_length, before, total)
    own_names, source_names = (
        [
            [name for name in states if name.startswith(f"{i}.{kind}.")]
            for i in range(len(spec.decoder.blocks))
        ]
        for kind in ("decoder", "encoder")
    )
    memory: list[Any]
    if is_continued:
        memory = [tuple(past[name] for name in names) for names in source_names]
    else:
        x = graph.reshape(Value(graph, ENCODED), (-1, spec.hidden_dim))
        memory = memory_of(operations, weights, x, rows)
    (logits, _), new = decode(
        operations,
        weights,
        Step(ids, positions, None, bias),
        [tuple(past[name] for name in names) for names in own_names],
        memory,
        operations.padding_bias(ids),
        None,
    )
    kept = {}
    for names, values in zip([*own_names, *source_names], [*new, *memory], strict=True):
        for name, made in zip(names, values, strict=True):
            if is_continued and ".state" in name:
                made = node("Concat", past[name], made, axis=1)
            if is_continued and ".encoder." in name:
                _, heads, _, width = states[name]
                made = node("ConstantOfShape", [0, heads, 1, width])
            kept[name] = made
    logits = graph.reshape(logits, (rows, -1, spec.target_vocabulary_size))
    return [logits, *(kept[name] for name in states)]


def _range(graph: Graph, first: Any, end: Value) -> Value:
    """Return the numbers from `first` (1,) to before `end` (1,)."""
    return graph.node("Range", *(graph.node("Squeeze", x, [0]) for x in (first, end)), 1)


def _positions(
    graph: Graph, spec: TransformerSpec, kind: str, max_length: int, first: Any, end: Value
) -> Value:
    """Return encodings (1, T, D) of positions; one beyond the last is an error."""
    table = graph.constant(spec.positions(getattr(spec, kind), max_length), f"{kind}.positions")
    # (1, T): onnxruntime would make a slice of a plain range, which has no error beyond its end.
    return graph.node("Gather", table, graph.node("Unsqueeze", _range(graph, first, end), [0]))


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
