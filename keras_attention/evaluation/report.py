"""The report on a trained model: scores before and after averaging, their significance, the cost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.normalization import FORM
from keras_attention.evaluation.bleu import check_lines, comparable_lines
from keras_attention.evaluation.comparison import corpus_scores, paired_bootstrap
from keras_attention.evaluation.report_text import report_text
from keras_attention.training.checkpoints import average_checkpoints
from keras_attention.utils.checks import (
    check_boolean,
    check_callable,
    check_has,
    check_integer,
    check_iterable,
    check_path,
    check_text,
)
from keras_attention.utils.files import DamagedFile, read_json, write_atomically, write_json
from keras_attention.utils.progress import activity
from keras_attention.utils.run_folder import RunFolder

SECTION = "evaluation"
START = "before training"
BEST, LAST = "best by ", "last checkpoint "


def evaluation_report(
    model: Any,
    translate: Callable[[list[str]], Sequence[str]],
    checkpoints: Sequence[str | os.PathLike[str]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    name: str = "test set",
    language: str = "de",
    measure_perplexity: Callable[[], float] | None = None,
    cost: Mapping[str, Any] | None = None,
    decoding: Mapping[str, Any] | None = None,
    samples: int = 1000,
    seed: int = 12345,
    set_weights: Callable[[Any, Sequence[Any]], None] = average_checkpoints,
    start: Callable[[Any], None] | None = None,
    best: Mapping[str, Any] | None = None,
    use_best: bool = False,
    moving_average: Callable[[Any, Sequence[Any]], None] | None = None,
) -> dict[str, Any]:
    """Translate with the first and the last of the averaged checkpoints and with their average; score.

    Afterwards the model has the averaged weights.

    Args:
        model: The model; its weights are replaced.
        translate: Function from source sentences to translations with the model's current weights, such as
            a `Translator`.
        checkpoints: The checkpoints to average, oldest first. A single one is not averaged.
        sources: Sentences to translate.
        references: Their reference translations.
        name: Name of these sentences, such as `"newstest2014"`.
        language: Language of the translations, for the Moses tokenizer.
        measure_perplexity: Returns the perplexity of the model with its current weights on the validation
            set. Without it, the report has no perplexity.
        cost: What `training_cost` returned.
        decoding: Search settings of `translate`, such as the beam size, for the report.
        samples: Resamples of the paired bootstrap.
        seed: Its seed.
        set_weights: Called with the model and checkpoints; sets the model's weights to their mean.
        start: Called with the model; gives it the pretrained weights that its training started from. They are
            scored as well, and all else is compared with them.
        best: The best checkpoint on the validation set: its `path` and `name`, the measure that it is the
            best `by`, and its `value`. It is scored as well.
        use_best: Whether it is the result, in place of the average.
        moving_average: Called like `set_weights`; sets the weights to the moving average in a checkpoint. The
            last one's takes the place of the average of all; the best one's is used, too.

    Returns:
        A JSON-serialisable dict: `test_set`, `sentences`, `text` (the form in which text is compared, and how
        many lines of each side were changed to it), `systems` (by name: scores with signatures,
        perplexity, checkpoints, seconds of translation), `averaging`, `significance`, `training_cost`,
        `decoding`, `best`, and `translations` of the last system, which is the result. See `report_text` and
        `write_report`.

    Raises:
        ValueError: If there is no checkpoint, or sources and references do not match.
    """
    for function_name, function in (("translate", translate), ("set_weights", set_weights)):
        check_callable(function_name, function)
    if measure_perplexity is not None:
        check_callable("measure_perplexity", measure_perplexity)
    for text_name, text in (("name", name), ("language", language)):
        check_text(text_name, text)
    _check_dicts(cost=cost, decoding=decoding)
    sources, references = check_lines(sources, references, "sources")
    check_integer("samples", samples, 1, 10**6)
    check_integer("seed", seed, 0)
    if not list(check_iterable("checkpoints", checkpoints)):
        raise ValueError("`checkpoints` is empty: there are no checkpoints to report on. Pass one.")
    for path in checkpoints:
        check_path("checkpoints", path)
    if start is not None:
        check_callable("start", start)
    if best is not None:
        check_has("best", best, "a dict of a checkpoint", "items")
    check_boolean("use_best", use_best)
    if use_best and best is None:
        raise ValueError("`use_best` needs `best`, the best checkpoint.")
    translations, systems = {}, {}
    if moving_average is not None:
        check_callable("moving_average", moving_average)
    wanted = {
        **({START: []} if start else {}),
        **_systems(checkpoints, best, use_best, moving_average is not None),
    }
    for title, paths in wanted.items():
        with activity(f"scoring: {title}"):
            if start is not None and title == START:
                start(model)
            elif moving_average is not None and not title.startswith(LAST):
                moving_average(model, paths)
            else:
                set_weights(model, paths)
            started = time.monotonic()
            translations[title] = list(translate(sources))
            seconds = time.monotonic() - started
            scores = corpus_scores(translations[title], references, language)
            systems[title] = {
                "checkpoints": [Path(path).name for path in paths],
                "scores": {key: dataclasses.asdict(score) for key, score in scores.items()},
                "perplexity": None if measure_perplexity is None else float(measure_perplexity()),
                "seconds": round(seconds, 1),
            }
    # The pretrained weights; or what comes before the result: the last checkpoint, or the average.
    trained = {title: system for title, system in systems.items() if title != START}
    baseline, *average = list(systems if start else trained)[0 if start else -2 :]
    differences = (
        paired_bootstrap(
            translations,
            references,
            baseline=baseline,
            language=language,
            samples=samples,
            seed=seed,
        )
        if average
        else []
    )
    return {
        "test_set": name,
        "sentences": len(sources),
        "language": language,
        "text": text_form(translations, references),
        "decoding": dict(decoding or {}),
        "systems": systems,
        "averaging": _averaging({k: v for k, v in trained.items() if not k.startswith(BEST)}),
        **({} if best is None else {"best": {k: v for k, v in best.items() if k != "path"}}),
        "significance": [dataclasses.asdict(difference) for difference in differences],
        "training_cost": dict(cost) if cost else None,
        "translations": translations[list(systems)[-1]],
    }


def text_form(systems: Mapping[str, Sequence[str]], references: Sequence[str]) -> dict[str, Any]:
    """Return the form in which text is compared, and how many lines of each side were changed to it.

    >>> text_form({"one": ["Männer"]}, ["Ma\u0308nner"])["changed"]
    {'references': 1, 'one': 0}
    """
    changed = {}
    for name, lines in {"references": references, **systems}.items():
        compared, _ = comparable_lines(lines, references)
        changed[name] = sum(map(str.__ne__, lines, compared))
    return {"form": FORM, "changed": changed}


def _check_dicts(**values: Any) -> None:
    """Arguments that are dicts or None, by their names."""
    for name, value in values.items():
        if value is not None:
            check_has(name, value, "a dict", "items")


def write_report(
    report: Mapping[str, Any],
    folder: str | os.PathLike[str],
    config: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> tuple[Path, Path]:
    """Write `report.txt` and `report.json` into a run's folder, each whole or not at all.

    In `report.json` the report becomes the entry `"evaluation"`, without its translations. It replaces an
    earlier evaluation of this run; other entries are kept.

    Args:
        report: What `evaluation_report` returned.
        folder: The run's folder, which has the run's `config.json`.
        config: Settings of the run, if known: they must be those in `config.json`.
        figures: All other entries of `report.json`, which replace the existing ones.

    Returns:
        The two files.

    Raises:
        ValueError: If the folder belongs to another run or is not a run's folder. Nothing is written then.
    """
    check_has("report", report, "what `evaluation_report` returned", "items")
    _check_dicts(config=config, figures=figures)
    run_folder = RunFolder(check_path("folder", folder))
    there = run_folder.settings()
    wanted = there if config is None else json.loads(json.dumps(config))
    if wanted != there:
        different = sorted(k for k in {*there, *wanted} if there.get(k) != wanted.get(k))
        raise ValueError(
            f"The run in '{folder}' is another one: its {run_folder.config.name} differs in "
            f"{', '.join(different)}. Nothing was written."
        )
    run = hashlib.sha256(json.dumps(there, sort_keys=True).encode()).hexdigest()
    json_file, text_file = run_folder.report, run_folder.report_text
    whole: dict[str, Any] = {}
    if figures is not None:
        whole = dict(figures)
    elif json_file.exists():
        whole = _read_report(json_file)
        owner = whole.get(SECTION, {}).get("run", run)
        if owner != run or whole.get("config", there) != there:
            raise ValueError(
                f"'{json_file}' is the report of another run: it does not match the config.json in its "
                "folder. Nothing was written. Move it away."
            )
    kept = {name: value for name, value in report.items() if name != "translations"}
    if "old_domain" in kept:
        kept["old_domain"] = {k: v for k, v in kept["old_domain"].items() if k != "translations"}
    whole[SECTION] = {"run": run, **kept}
    write_atomically(text_file, report_text(report, title=run_folder.name))
    write_json(json_file, whole)  # Last: a run with this file is finished.
    return text_file, json_file


def _systems(
    checkpoints: Sequence[Any],
    best: Mapping[str, Any] | None,
    use_best: bool,
    has_moving_average: bool,
) -> dict[str, list[Any]]:
    """Return the checkpoints that each system averages, by name; at the end the result."""
    systems = {f"{LAST}({Path(checkpoints[-1]).name})": [checkpoints[-1]]}
    if has_moving_average:
        systems[f"moving average ({Path(checkpoints[-1]).name})"] = [checkpoints[-1]]
    elif len(checkpoints) > 1:
        first = {f"first averaged ({Path(checkpoints[0]).name})": [checkpoints[0]]}
        systems = {**first, **systems, f"average of {len(checkpoints)}": list(checkpoints)}
    if best is None:
        return systems
    own = {f"{BEST}{best['by']} ({best['name']})": [best["path"]]}
    return {**systems, **own} if use_best else {**own, **systems}


def _averaging(systems: Mapping[str, Any]) -> dict[str, Any] | None:
    """Scores before and after averaging; None if nothing was averaged."""
    if len(systems) == 1:
        return None
    before, after = (systems[title] for title in list(systems)[-2:])
    changes = {}
    for key in before["scores"]:
        pair = [system["scores"][key]["score"] for system in (before, after)]
        changes[key] = {"before": pair[0], "after": pair[1], "gain": pair[1] - pair[0]}
    return {"checkpoints": after["checkpoints"], **changes}


def _read_report(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except DamagedFile as error:
        raise ValueError(
            f"'{path.parent}' has a report that cannot be read: {error} Nothing was written. Move "
            f"'{path.name}' away."
        ) from None
