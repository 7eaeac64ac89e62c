"""Where the time of an update goes, by part of a training step: what the frameworks' profilers saw.

A profiler gives events that lie within each other. The time of an event is its own, without those within
it, and belongs to the part that its name says, or else to that of the nearest event around it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

PRODUCTS = "products of matrices"
ATTENTION = "softmax, masks, heads"
NORM = "dropout, sum, norm"
LOSS = "loss and its gradient"
EMBEDDING = "embedding, positions"
BIASES = "biases, ReLU, joined kernels"
ADAM = "Adam, norm of the gradient"
STEP = "Keras' step: metrics, callbacks, batches"
CASTS = "casts"
CALLS = "calls: layers, dispatch, autograd"

REST = "the rest: Python, callbacks, waiting"
SHOWN = 4  # operations of a part

# The first pattern that is found in a name decides; names further out are asked in turn.
TORCH_RULES = (
    (r"^aten::(mm|addmm_?|bmm|baddbmm_?)$|^mkldnn::_linear", PRODUCTS),
    (r"^part: (.*)", None),
    (r"_Crossentropy", LOSS),
    (r"_DropoutAddNorm|_Dropout|layer_norm", NORM),
    (
        r"_Weights|aten::softmax|Bmm|Transpose|SplitBackward|SplitWithSizes|ExpandBackward",
        ATTENTION,
    ),
    (r"[Ee]mbedding|sparse|_TiedProjection", EMBEDDING),
    (r"_Linear|Addmm|MmBackward|Relu|Threshold|CatBackward|aten::(cat|relu_|sum)$", BIASES),
    (r"ToCopyBackward|aten::_to_copy|aten::to$", CASTS),
    (r"AccumulateGrad", CALLS),
)
TENSORFLOW_RULES = (
    (r":.*MatMul", PRODUCTS),
    (r"^island: .*crossentropy", LOSS),
    (r"^island: .*(norm|dropped)", NORM),
    (r"^island: .*softmax", ATTENTION),
    (r"/adam/|:L2Loss|:ResourceApplyAdam", ADAM),
    (r"_residual|_dropout|norm_(for|back)ward|_dropped", NORM),
    (r"compile_loss|crossentropy", LOSS),
    (r"[:_]Cast$", CASTS),
    (
        r"feed_forward|BiasAdd|ReluGrad|_attention_?\d*/(concat|split|Slice)|:ConcatV2|:Slice",
        BIASES,
    ),
    # The softmax' own gradient has no name but that of its operations.
    (r"attention|softmax|Softmax|/(mul|Sum|sub)(_\d+)?:", ATTENTION),
    (r"token_embedding|positions|UnsortedSegmentSum|:AddN|Gather", EMBEDDING),
    (r"^Iterator|PyFunc|Generator|loss/|metrics", STEP),
)


@functools.cache
def part_of_name(name: str, rules: tuple[tuple[str, str | None], ...]) -> str | None:
    """Return the part that a name says, or None.

    Example:

    >>> part_of_name("aten::mm", TORCH_RULES), part_of_name("part: loss", TORCH_RULES)
    ('products of matrices', 'loss')
    """
    for pattern, part in rules:
        if found := re.search(pattern, name):
            return part or found.group(1)
    return None


def part_of(names: Iterable[str], rules: tuple[tuple[str, str | None], ...]) -> str:
    """Return the part of an event, from its name and those around it, the nearest first.

    Example:

    >>> part_of(["aten::mul", "_DropoutAddNormBackward"], TORCH_RULES)
    'dropout, sum, norm'
    """
    found = (part_of_name(name, rules) for name in names)
    return next((part for part in found if part is not None), CALLS)


def torch_profile(
    run: Callable[[int], list[float]], model: Any, count: int
) -> tuple[list[dict[str, Any]], list[float]]:
    """Seconds by part and operation, and of each update, of PyTorch on a CPU.

    Its operations run one after the other. Each update is profiled by itself, after two that are not:
    what a profiler keeps stands in the way of memory that would be used again, and pages are made anew.
    """
    import torch

    def around(event: Any) -> Iterator[Any]:
        while event is not None:
            yield event
            event = event.cpu_parent

    found: list[tuple[str, str, float]] = []
    profiled: list[float] = []
    with scopes(model):
        for _ in range(count):
            run(2)
            with torch.profiler.profile() as profiler:
                profiled.extend(run(1))
            for event in profiler.events():
                names = [each.name for each in around(event)]
                # Nothing of what `fit` begins with.
                if any(name.startswith("part: ") for name in names):
                    seconds = event.self_cpu_time_total / 1e6
                    found.append((part_of(names, TORCH_RULES), event.name, seconds))
    return added(found), profiled


@contextlib.contextmanager
def scopes(model: Any) -> Iterator[None]:
    """Within this context PyTorch's profiler sees what Python does in each part of a step."""
    import torch

    from keras_attention.ops.backends import torch as kernels

    replaced: list[tuple[Any, str, Any]] = []

    def scope(owner: Any, name: str, part: str) -> None:
        function = getattr(owner, name)
        replaced.append((owner, name, vars(owner).get(name)))

        def within(*args: Any, **kwargs: Any) -> Any:
            with torch.profiler.record_function(f"part: {part}"):
                return function(*args, **kwargs)

        setattr(owner, name, within)

    scope(kernels, "keep_mask", "dropout's masks")
    scope(model, "train_step", CALLS)
    scope(model, "_compute_loss", LOSS)
    scope(model, "compute_metrics", STEP)
    scope(model.optimizer, "apply", ADAM)
    try:
        yield
    finally:
        for owner, name, before in replaced:
            delattr(owner, name) if before is None else setattr(owner, name, before)


def tensorflow_profile(
    run: Callable[[int], list[float]], count: int
) -> tuple[list[dict[str, Any]], list[float]]:
    """Seconds by part and operation, and of each update, of TensorFlow's graph on a CPU.

    Operations run at once on several threads. What they take together is made as long as the time in
    which at least one of them ran.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        profiled = run(count)
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        space.ParseFromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    found: list[tuple[str, str, float]] = []
    busy: list[tuple[float, float]] = []
    for plane in space.planes:
        for line in plane.lines:
            if line.name.startswith("tf_Compute"):
                events = [_interval(plane, line, event) for event in line.events]
                for names, seconds in own_seconds(events):
                    operation = re.sub(r".*:", "", names[0])
                    found.append((part_of(names, TENSORFLOW_RULES), operation, seconds))
                busy += [event[:2] for event in events]
    scale = covered(busy) / sum(seconds for *_, seconds in found)
    scaled = ((part, operation, seconds * scale) for part, operation, seconds in found)
    return added(scaled), profiled


def _interval(plane: Any, line: Any, event: Any) -> tuple[float, float, str]:
    """Begin and end in seconds, and the name; of what XLA has compiled, that of the whole island."""
    begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
    name = plane.event_metadata[event.metadata_id].name
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "hlo_module":
            name = f"island: {plane.stat_metadata[stat.ref_value].name}"
    return begin, begin + event.duration_ps / 1e12, name


def own_seconds(events: Sequence[tuple[float, float, str]]) -> list[tuple[list[str], float]]:
    """Return the names around each event, its own first, and its seconds without the events within it.

    Args:
        events: Begin, end and name of a thread's events: each lies within another or apart from it.

    Example:

    >>> own_seconds([(0, 9, "all"), (1, 3, "first"), (4, 8, "second"), (5, 6, "within")])
    [(['all'], 3), (['first', 'all'], 2), (['second', 'all'], 3), (['within', 'second', 'all'], 1)]
    """
    found: list[tuple[list[str], float]] = []
    around: list[int] = []
    ends: list[float] = []
    for begin, end, name in sorted(events, key=lambda event: (event[0], -event[1])):
        while ends and ends[-1] <= begin:
            ends.pop()
            around.pop()
        outer = found[around[-1]][0] if around else []
        if around:
            found[around[-1]] = (outer, found[around[-1]][1] - (end - begin))
        around.append(len(found))
        ends.append(end)
        found.append(([name, *outer], end - begin))
    return found


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of what the intervals cover together.

    >>> covered([(4, 6), (0, 2), (1, 3)])
    5
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return int(total) if total == int(total) else total


def added(found: Iterable[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """Seconds and calls of each operation of each part."""
    totals: dict[tuple[str, str], list[float]] = {}
    for part, operation, seconds in found:
        total = totals.setdefault((part, operation), [0.0, 0])
        total[0] += seconds
        total[1] += 1
    return [
        {"part": part, "operation": operation, "seconds": seconds, "calls": calls}
        for (part, operation), (seconds, calls) in totals.items()
    ]


def profile_text(found: dict[str, Any], flop: float, ceiling: float | None) -> str:
    """Return a profile in lines, the longest part first, each with the operations that cost most in it.

    Args:
        found: From `KerasProgram.profile`.
        flop: FLOPs of an update.
        ceiling: FLOP/s of large products; None if they were not measured.
    """
    wall, parts = found["profiled"], {}
    for each in found["parts"]:
        parts.setdefault(each["part"], []).append(each)
    sums = {part: sum(each["seconds"] for each in inner) for part, inner in parts.items()}
    sums[REST] = wall - sum(sums.values())
    speed = flop / sums[PRODUCTS] / 1e9
    share = f", {1e9 * speed / ceiling:.0%} of {ceiling / 1e9:.0f}" if ceiling else ""
    lines = [
        f"{1e3 * found['seconds']:.1f} ms an update ({1e3 * wall:.1f} under the profiler), "
        f"{flop / 1e9:.1f} GFLOP; products at {speed:.0f} GFLOP/s{share}"
    ]
    for part, seconds in sorted(sums.items(), key=lambda item: -item[1]):
        inner = sorted(parts.get(part, []), key=lambda each: -each["seconds"])[:SHOWN]
        texts = [
            f"{each['operation']} {1e3 * each['seconds']:.1f} ({each['calls']:.0f} x)"
            for each in inner
        ]
        lines.append(f"{1e3 * seconds:8.1f} ms {seconds / wall:4.0%}  {part}: {', '.join(texts)}")
    return "\n".join(lines)
