"""The report on a trained model: scores before and after averaging, their significance, the cost."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.data.normalization import FORM
from keras_attention.data.text_files import read_lines
from keras_attention.evaluation.bleu import check_lines, comparable_lines, corpus_ter
from keras_attention.evaluation.comparison import corpus_scores, paired_tests
from keras_attention.evaluation.report_text import report_text
from keras_attention.utils.arguments import check_fields, checked
from keras_attention.utils.files import read_json, write_atomically, write_json
from keras_attention.utils.progress import activity
from keras_attention.utils.run_folder import RunFolder

START = "before training"
BEST, LAST, MIXED = "best by ", "last checkpoint ", "with "


@dataclasses.dataclass(frozen=True)
class Sentences:
    """A text to translate, with its reference translations.

    Attributes:
        sources: Sentences to translate; `()` if only translations that are there are compared.
        references: Their reference translations.
        name: Name of the text, such as `"newstest2014"`.
        language: Language code of the translations, which chooses the words of BLEU and TER; None if unknown.
        ter: Whether to score TER, too; see `corpus_ter`.

    Example:

    >>> Sentences(["a dog"], ["ein Hund"], "one line", "de").language
    'de'
    """

    sources: Sequence[str]
    references: Sequence[str]
    name: str = "test set"
    language: str | None = None
    ter: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        given = self.references if self.sources == () else self.sources
        sources, references = check_lines(given, self.references, "sources")
        object.__setattr__(self, "sources", () if self.sources == () else sources)
        object.__setattr__(self, "references", references)


@dataclasses.dataclass(frozen=True)
class System:
    """Weights of a model that are scored.

    Attributes:
        load: Gives the model these weights; it has no arguments.
        checkpoints: The checkpoints that they come from, for the report.
    """

    load: Callable[[], None]
    checkpoints: Sequence[str | os.PathLike[str]] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@checked
def evaluation_report(
    systems: Mapping[str, System],
    translate: Callable[[list[str]], Sequence[str]],
    text: Sentences,
    *,
    measure_perplexity: Callable[[], float] | None = None,
    cost: Mapping[str, Any] | None = None,
    decoding: Mapping[str, Any] | None = None,
    samples: Annotated[int, Ge(1), Le(10**6)] = 1000,
) -> dict[str, Any]:
    """Translate with several weights of a model, such as checkpoints and their average; score and compare.

    Afterwards the model has the weights of the last system, which is the result.

    Args:
        systems: The weights, by the title that the report gives them. All are compared with the one before
            the result, or with that called `"before training"`.
        translate: Function from source sentences to translations with the model's current weights, such as
            a `Translator`.
        text: What is translated.
        measure_perplexity: Returns the perplexity of the model with its current weights on the validation
            set. Without it, the report has no perplexity.
        cost: What `training_cost` returned.
        decoding: Search settings of `translate`, such as the beam size, for the report.
        samples: Resamples of the paired bootstrap, and trials of the randomization.

    Returns:
        A JSON-serialisable dict: `test_set`, `sentences`, `text` (the form in which text is compared, and how
        many lines of each side were changed to it), `systems` (by title: scores with signatures,
        perplexity, checkpoints, seconds of translation), `averaging`, `significance`, `training_cost`,
        `decoding`, and `translations` of the last system. See `report_text` and `write_report`.

    Raises:
        ValueError: If there is no system.
    """
    if not systems:
        raise ValueError("`systems` is empty: there are no weights to report on. Pass one system.")
    translations, figures = {}, {}
    for title, system in systems.items():
        with activity(f"scoring: {title}"):
            system.load()
            started = time.monotonic()
            translations[title] = list(translate(list(text.sources)))
            seconds = time.monotonic() - started
            figures[title] = {
                "checkpoints": [Path(path).name for path in system.checkpoints],
                "scores": system_scores(translations[title], text),
                "perplexity": None if measure_perplexity is None else float(measure_perplexity()),
                "seconds": round(seconds, 1),
            }
    return {
        **compared(translations, text, decoding, samples, [START, *list(systems)[-2:-1]]),
        "systems": figures,
        "averaging": _averaging(figures),
        "training_cost": dict(cost) if cost else None,
        "translations": translations[list(systems)[-1]],
    }


def system_scores(translations: Sequence[str], text: Sentences) -> dict[str, Any]:
    """Return the scores of one system's translations, each with its signature."""
    scores = corpus_scores(translations, text.references, text.language)
    if text.ter:
        scores["ter"] = corpus_ter(translations, text.references, language=text.language)
    return {name: dataclasses.asdict(score) for name, score in scores.items()}


def compared(
    translations: Mapping[str, Sequence[str]],
    text: Sentences,
    decoding: Mapping[str, Any] | None,
    samples: int,
    baselines: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the text of a report, and whether its systems differ by more than chance.

    All are compared with the first of the baselines that there is, or else with the first system.
    """
    differences = []
    if len(translations) > 1:
        baseline = next((title for title in baselines if title in translations), None)
        options: Any = {"language": text.language, "samples": samples}
        differences = paired_tests(translations, text.references, baseline=baseline, **options)
    return {
        "test_set": text.name,
        "sentences": len(text.references),
        "language": text.language,
        "text": text_form(translations, text.references),
        "decoding": dict(decoding or {}),
        "significance": [dataclasses.asdict(difference) for difference in differences],
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


@checked
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
    run_folder = RunFolder(Path(folder))
    there = run_folder.settings()
    wanted = there if config is None else json.loads(json.dumps(config))
    if wanted != there:
        different = sorted(k for k in {*there, *wanted} if there.get(k) != wanted.get(k))
        raise ValueError(
            f"The run in '{folder}' is another one: its {run_folder.config.name} differs in "
            f"{', '.join(different)}. Nothing was written."
        )
    json_file, text_file = run_folder.report, run_folder.report_text
    whole: dict[str, Any] = {"config": there, **(figures or {})}
    if figures is None and json_file.exists():
        whole = read_json(json_file, "Nothing was written. Move it away.")
        if whole.get("config") != there:
            raise ValueError(
                f"'{json_file}' is the report of another run: it does not match the config.json in its "
                "folder. Nothing was written. Move it away."
            )
    whole["evaluation"] = {name: value for name, value in report.items() if name != "translations"}
    text = report_text(report, title=run_folder.name)
    write_atomically(text_file, text.encode("utf-8", "backslashreplace"))  # of odd names
    write_json(json_file, whole)  # Last: a run with this file is finished.
    return text_file, json_file


def _averaging(systems: Mapping[str, Any]) -> dict[str, Any] | None:
    """Scores of the last averaged checkpoint and of the average; None if nothing was averaged."""
    titles = [title for title in systems if title != START]
    result = next(
        (title for title in reversed(titles) if not title.startswith((BEST, MIXED))), None
    )
    if result is None:
        return None
    after = systems[result]
    last = after["checkpoints"][-1:]
    earlier = [t for t in titles if t != result and systems[t]["checkpoints"] == last]
    if not earlier:
        return None
    before = systems[earlier[-1]]
    changes = {}
    for key in before["scores"]:
        pair = [system["scores"][key]["score"] for system in (before, after)]
        changes[key] = {"before": pair[0], "after": pair[1], "gain": pair[1] - pair[0]}
    return {"checkpoints": after["checkpoints"], **changes}


def own_translations(runs: Mapping[str, RunFolder]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the translations of their test set that finished runs have kept, by name, and its references."""
    remedy = "Give --source-file and --reference-file: all runs then translate these."
    translations: dict[str, list[str]] = {}
    test_sets = {}
    for name, run in runs.items():
        for file in (run.report, run.translations, run.references):
            if not file.is_file():
                raise ValueError(f"'{name}' has no {file.name}: it is not finished. {remedy}")
        settings = run.settings()
        translations[name] = list(read_lines(run.translations))
        # The fingerprint tells of the sources, too.
        fingerprint = settings.get("test_fingerprint", settings.get("validation_fingerprint"))
        test_sets[name] = fingerprint, list(read_lines(run.references))
    first, *others = test_sets
    for other in others:
        if test_sets[other] != test_sets[first]:
            sizes = [f"{len(test_sets[name][1]):,}" for name in (first, other)]
            raise ValueError(
                f"'{first}' and '{other}' have different test sets, of {' and '.join(sizes)} sentences "
                "(every character counts, another Unicode form, too): their translations cannot be "
                f"compared. {remedy}"
            )
    return translations, test_sets[first][1]


def runs_report(
    translations: Mapping[str, Sequence[str]],
    text: Sentences,
    *,
    decoding: Mapping[str, Any] | None = None,
    samples: int = 1000,
) -> dict[str, Any]:
    """Scores of models on one test set, and whether they differ from the first by more than chance.

    The dict for `report_text` is like that of `evaluation_report`, without averaging and cost.
    """
    scores = {name: system_scores(lines, text) for name, lines in translations.items()}
    return {
        **compared(translations, text, decoding, samples),
        # `report_text` shows the last first.
        "systems": {
            name: {"scores": scores[name], "perplexity": None} for name in reversed(scores)
        },
    }
