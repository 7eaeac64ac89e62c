"""Whether a run can teach a student, said before a backend starts."""

from __future__ import annotations

import os

from keras_attention.data.corpus import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.recipes.config import TranslationConfig
from keras_attention.utils.checks import check_has, check_path
from keras_attention.utils.files import OccupiedPath
from keras_attention.utils.run_folder import RunFolder


def check_distillation(
    teacher: str | os.PathLike[str],
    corpus: Corpus,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
) -> int:
    """Return the teacher's beam size; refuse one that cannot teach this student, or an occupied folder."""
    run = RunFolder(check_path("teacher", teacher))
    student = RunFolder(check_path("output_dir", output_dir))
    check_has("corpus", corpus, "a Corpus", "splits", "train", "validation")
    check_has("config", config, "a TranslationConfig", "preset", "steps")
    settings = run.settings(("beam_size",))
    run.check_finished()
    for file in (run.report, run.translations, run.references):
        if not file.is_file():
            raise ValueError(f"'{run.path}' has no {file.name}, with which a student is compared.")
    _check_text(run, settings, corpus)
    if Tokenizer.load(run.tokenizer).algorithm == "imported":
        raise ValueError(
            f"'{run.path}' has the tokenizer of another program's model, which a new model cannot take. "
            "Distil a run that was trained without --from."
        )
    for name in ("mixture", "start_from", "guided_alignment"):
        if getattr(config, name):
            raise ValueError(
                f"A student is a new model that learns its teacher's translations alone: leave out `{name}`."
            )
    if student.path.exists() and not student.distilled.is_dir():
        if not student.path.is_dir() or any(student.path.iterdir()):
            raise OccupiedPath(
                f"'{student.path}' exists and is not the folder of a distillation. Nothing was changed "
                "there. Choose another output folder."
            )
    return int(settings["beam_size"])


def _check_text(run: RunFolder, settings: dict, corpus: Corpus) -> None:
    for name, text in corpus.splits.items():
        if settings.get(f"{name}_fingerprint") != text.fingerprint():
            raise ValueError(
                f"The {name} text is not the one of the run in '{run.path}', whose corpus is called "
                f"'{settings.get('corpus')}'. Give the text as it was given when that run was trained."
            )
    if corpus.vocabulary is not None:
        raise ValueError(
            f"The corpus '{corpus.name}' is split into subwords already. Distillation needs plain text."
        )
