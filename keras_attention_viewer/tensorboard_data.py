"""Reads attention records through TensorBoard's data provider, with both of its loaders."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tensorboard import errors
from tensorboard.data import provider

from keras_attention_viewer.codec import (
    PLUGIN_NAME,
    RecordError,
    decode_header,
    decode_weights,
    parse_tag,
    weight_shape,
)
from keras_attention_viewer.event_files import EventFiles
from keras_attention_viewer.index import (
    SCALAR_TAGS,
    join_curves,
    make_index,
    run_index,
    sentence_index,
)

# `downsample` of the provider: more than TensorBoard keeps.
ALL = 1_000_000
CURVE_POINTS = 1000
# What the index needs of a header: it is kept, and a whole header is large.
INDEXED = ("kinds", "source_text", "target_text")
# The folder of a run's event files, below the folder that has the run's name.
LOG_FOLDER = "logs"


class NotFound(LookupError):
    """A run, sentence, step, kind or layer that is not there."""


@dataclasses.dataclass(frozen=True)
class _Step:
    """One logged step of a sentence: when it was written, and the keys of its blobs."""

    wall_time: float
    keys: tuple[str, ...]


class AttentionData:
    """The data that the plugin's routes serve.

    A blob is looked up by the names of its run, sentence and step among those that TensorBoard has loaded.
    Nothing that comes from a browser is used as a key or a path. What is not there is a NotFound, what cannot
    be read a RecordError. In the log folder, which is None if it is
    not on this machine, cut-off event files are looked for.
    """

    def __init__(self, data_provider: Any, folder: Path | None):
        self._provider = data_provider
        self._folder = folder
        self._event_files = EventFiles()
        self._steps: dict[tuple[str, str, str], dict[int, _Step]] = {}
        # What `_look_at` found without a problem, and the steps that it looked at.
        self._looked: dict[tuple[str, str, str], tuple[dict[int, _Step], dict[str, Any]]] = {}

    def index(self, ctx: Any, experiment: str) -> dict[str, Any]:
        """Return the runs with their sentences, steps, curves and problems."""
        everything = self._provider.read_blob_sequences(
            ctx, experiment_id=experiment, plugin_name=PLUGIN_NAME, downsample=ALL
        )
        curves = self._curves(ctx, experiment)
        names = {run.run_name for run in self._provider.list_runs(ctx, experiment_id=experiment)}
        runs = []
        titles = self._titles(sorted(names | set(everything)))
        for run in sorted(names | set(everything)):
            sentences, problems = [], []
            for tag, series in sorted(everything.get(run, {}).items()):
                if parse_tag(tag) is None:
                    problems.append(f"'{tag}' is not an attention record of this viewer.")
                    continue
                steps = self._remember(experiment, run, tag, series)
                header, said = self._known_header(ctx, (experiment, run, tag), steps)
                problems += said
                if header is not None:
                    times = [steps[step].wall_time for step in sorted(steps)]
                    sentences.append(sentence_index(tag, header, sorted(steps), times))
            problems += self._file_problems(run)
            unique = list(dict.fromkeys(problems))
            runs.append(run_index(run, sentences, curves.get(run), unique, titles[run]))
        there = {(experiment, run, tag) for run, series in everything.items() for tag in series}
        for kept in (self._looked, self._steps):
            for place in [one for one in kept if one[0] == experiment and one not in there]:
                del kept[place]
        return make_index(runs)

    def header(self, ctx: Any, experiment: str, run: str, tag: str, step: int) -> bytes:
        """Return the header of an entry as it is stored: JSON in gzip."""
        blob = self._blob(ctx, self._step(ctx, experiment, run, tag, step), 0)
        decode_header(blob)
        return blob

    def weights(
        self, ctx: Any, experiment: str, run: str, tag: str, step: int, kind: str, layer: int
    ) -> bytes:
        """Return the weights of a layer as they are stored: uint16 (N, T, S), little-endian, in gzip."""
        there = self._step(ctx, experiment, run, tag, step)
        header = decode_header(self._blob(ctx, there, 0))
        kinds = {one["name"]: one for one in header["kinds"]}
        if kind not in kinds or not 0 <= layer < kinds[kind]["layers"]:
            raise NotFound(f"Step {step} of '{tag}' has no layer {layer} of kind {kind!r}.")
        blob = self._blob(ctx, there, kinds[kind]["first_blob"] + layer)
        decode_weights(blob, weight_shape(header, kinds[kind]))
        return blob

    def _step(self, ctx: Any, experiment: str, run: str, tag: str, step: int) -> _Step:
        steps = self._steps.get((experiment, run, tag), {})
        if step not in steps:  # logged since the index was read
            found = self._provider.read_blob_sequences(
                ctx,
                experiment_id=experiment,
                plugin_name=PLUGIN_NAME,
                downsample=ALL,
                run_tag_filter=provider.RunTagFilter(runs=[run], tags=[tag]),
            )
            steps = self._remember(experiment, run, tag, found.get(run, {}).get(tag, ()))
        if step not in steps:
            raise NotFound(f"Run {run!r} has no step {step} of '{tag}'.")
        return steps[step]

    def _remember(
        self, experiment: str, run: str, tag: str, series: Sequence[Any]
    ) -> dict[int, _Step]:
        steps = {
            datum.step: _Step(datum.wall_time, tuple(value.blob_key for value in datum.values))
            for datum in series
        }
        if steps:
            self._steps[experiment, run, tag] = steps
        return steps

    def _blob(self, ctx: Any, step: _Step, number: int) -> bytes:
        if number >= len(step.keys):
            raise RecordError(f"This attention record has no part {number}: it is incomplete.")
        try:
            return self._provider.read_blob(ctx, blob_key=step.keys[number])
        except (errors.NotFoundError, KeyError):
            raise NotFound("This step is not there any more: the run was started again.") from None

    def _known_header(
        self, ctx: Any, place: tuple[str, str, str], steps: dict[int, _Step]
    ) -> tuple[dict[str, Any] | None, list[str]]:
        """Return what `_look_at` says; a page asks again and again, so nothing is read twice."""
        looked_at, header = self._looked.get(place, (None, None))
        if looked_at == steps:
            return header, []
        header, problems = self._look_at(ctx, place[2], steps)
        if header is not None and not problems:
            self._looked[place] = steps, header
        return header, problems

    def _look_at(
        self, ctx: Any, tag: str, steps: dict[int, _Step]
    ) -> tuple[dict[str, Any] | None, list[str]]:
        """Return what the index needs of the first header that can be read, and what is wrong.

        Only the first and the last step are read: a run may have hundreds.
        """
        headers, problems = [], []
        for step in sorted({min(steps), max(steps)}):
            try:
                header = decode_header(self._blob(ctx, steps[step], 0))
                headers.append({key: header[key] for key in INDEXED})
            except (RecordError, NotFound) as error:
                problems.append(f"Step {step} of '{tag}': {error}")
        if len(headers) == 2 and headers[0]["kinds"] != headers[1]["kinds"]:
            sizes = [", ".join(_sizes(header)) for header in headers]
            problems.append(
                f"The steps are of models of several sizes: first {sizes[0]}; last {sizes[1]}. "
                "Log each model into a folder of its own to compare them."
            )
        times = [steps[step].wall_time for step in sorted(steps)]
        if any(later < earlier for earlier, later in zip(times, times[1:], strict=False)):
            problems.append(
                "This run was resumed without marking it, and wrote some steps twice. Of these the "
                "older ones are shown."
            )
        return (headers[0] if headers else None), problems

    def _curves(self, ctx: Any, experiment: str) -> dict[str, dict[str, list[list[float]]]]:
        """By run and name, the curves that are drawn over the steps."""
        tags = [tag for groups in SCALAR_TAGS.values() for group in groups for tag in group]
        found = self._provider.read_scalars(
            ctx,
            experiment_id=experiment,
            plugin_name="scalars",
            downsample=CURVE_POINTS,
            run_tag_filter=provider.RunTagFilter(tags=tags),
        )
        curves: dict[str, dict[str, list[list[float]]]] = {}
        for run, series in found.items():
            for name, groups in SCALAR_TAGS.items():
                group = next((one for one in groups if any(tag in series for tag in one)), ())
                points = join_curves(
                    [
                        [[datum.step, float(datum.value)] for datum in series.get(tag, ())]
                        for tag in group
                    ]
                )
                if group:
                    curves.setdefault(run, {})[name] = [p for p in points if p[1] - p[1] == 0]
        return curves

    def _titles(self, runs: Sequence[str]) -> dict[str, str]:
        """Name runs for the page: by their folders, without the one of the event files."""
        titles = {}
        for run in runs:
            parts = [part for part in PurePosixPath(run).parts if part != LOG_FOLDER]
            titles[run] = "/".join(parts) or run
            if not parts and self._folder is not None:  # by the log folder, or the run's above it
                folder = self._folder.resolve()
                titles[run] = (folder.parent if folder.name == LOG_FOLDER else folder).name or run
        return titles if len(set(titles.values())) == len(runs) else {run: run for run in runs}

    def _file_problems(self, run: str) -> list[str]:
        """Cut-off event files of a run, if its folder lies below the log folder."""
        if self._folder is None:
            return []
        root = self._folder.resolve()
        folder = (root / run).resolve()
        return self._event_files.problems(folder) if folder.is_relative_to(root) else []


def _sizes(header: dict[str, Any]) -> Iterator[str]:
    for kind in header["kinds"]:
        yield f"{kind['name']} of {kind['layers']} layers with {kind['heads']} heads"
