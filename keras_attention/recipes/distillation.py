"""Sequence-level distillation (Kim and Rush 2016): a student learns the translations of its teacher."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.corpus import Corpus
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import FilePairs, ParallelText
from keras_attention.data.text_files import read_lines
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import bleu_tokenizer
from keras_attention.evaluation.report import Sentences
from keras_attention.recipes.bulk import CHUNK_LINES, translate_corpus
from keras_attention.recipes.compare import own_translations, runs_report
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import Run
from keras_attention.recipes.teacher import check_distillation
from keras_attention.training import processes
from keras_attention.training.agreement import chief_first
from keras_attention.training.joining import check_launch, check_workers
from keras_attention.utils.checks import check_boolean, check_integer
from keras_attention.utils.files import atomic_file
from keras_attention.utils.progress import Progress
from keras_attention.utils.run_folder import RunFolder


def distill(
    teacher: str | os.PathLike[str],
    corpus: Corpus,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
    n_best: int | None = None,
    finish: bool = False,
) -> dict[str, Any]:
    """Train a student on a teacher's translations of its own training text (Kim and Rush 2016).

    The teacher translates the source sentences by its own search. Of the n best translations of each, the
    one with the best sentence BLEU (sacreBLEU's) against the reference is what the student learns; of equally
    good ones the first. Validation and test set, tokenizer and tags are the teacher's. The report compares
    both on the test set. Call it again with the same arguments to continue where a stopped call was: the
    translations, the text and the checkpoints are kept in the folder.

    Args:
        teacher: Folder of a finished run.
        corpus: The text that the teacher was trained with.
        config: The student's settings. Size, algorithm and symbols of the teacher's tokenizer, and its source
            prefix, take the place of the student's.
        output_dir: The student's folder: that of a run, and `distilled/`, the text that it learns.
        n_best: Number of translations to choose from. The teacher's beam is widened to it. Defaults to the
            teacher's beam size.
        finish: As of `train_translation`. Defaults to False.

    Returns:
        The report of the student's run, as `train_translation` does.

    Raises:
        ValueError: If the teacher is not finished or was trained with another text, or the settings do not
            go with it; before anything is translated.
        TrainingStopped: As of `train_translation`.

    Example:

    ```python
    config = TranslationConfig("small", {"num_layers": (6, 2)}, steps=12_000)
    distill("TEACHER", load_corpus("demo"), config, "STUDENT")
    ```
    """
    if n_best is not None:
        check_integer("n_best", n_best, 1)
    check_boolean("finish", finish)
    beam_size = check_distillation(teacher, corpus, config, output_dir)
    number = n_best or beam_size
    early = DistilledRun(teacher, corpus, config, output_dir, finish=finish)
    early.check_packages()
    check_workers()
    check_launch(config.strategy)
    early.set_budget()
    early.resolved.check(corpus.train)  # before the translations, which may take hours
    if (processes.launched() or (0, 1))[1] > 1:
        raise ValueError("`distill` runs in one process. Start it without torchrun.")
    _check_room_for_translations(early)
    search = {"beam_size": max(number, beam_size)}
    text = distilled_corpus(teacher, corpus, early.folder.distilled, number, **search)
    return DistilledRun(teacher, text, config, output_dir, finish=finish).complete()


def _check_room_for_translations(run: DistilledRun) -> None:
    """Refuse batches that may have no room for the longest translations, before the teacher makes them."""
    longest = run.teacher.longest_source()
    if longest is None or (run.folder.distilled / "n_best").exists():  # begun already
        return
    rows, limit = run.resolved.row_multiple, run.config.max_length
    need = min(limit, longest + Translator.max_extra_length)
    if run.config.batch_tokens // rows < need:
        raise ValueError(
            f"`batch_tokens` ({run.config.batch_tokens}) is too small: the teacher's translations may have "
            f"{need} tokens, and the number of sentences in a batch is a multiple of {rows} (row_multiple, "
            f"replicas, accumulation_steps). Raise it to {rows * need}, or lower `max_length`."
        )


def distilled_corpus(
    teacher: str | os.PathLike[str], corpus: Corpus, folder: Path, n_best: int, **search: Any
) -> Corpus:
    """Return the corpus with the teacher's translations as targets; what is there already is taken.

    The folder gets `source.txt`, `target.txt`, and in `n_best/` the translations to choose from. `search` are
    arguments of `translate_corpus`.
    """
    source, target = folder / "source.txt", folder / "target.txt"
    folder.mkdir(parents=True, exist_ok=True)
    _write_once(source, corpus.train.sources())
    # Also if `target` is there: work by another teacher or with other settings is refused.
    how = {"n_best": n_best, "as_json": True, "chunk_lines": CHUNK_LINES, **search}
    (found,) = translate_corpus(teacher, [source], folder / "n_best", **how)
    _write_once(target, _chosen(found, corpus))
    text = ParallelText(f"{corpus.name}/train, distilled", FilePairs(source, target))
    return dataclasses.replace(
        corpus,
        name=f"{corpus.name}-distilled",
        description=f"{corpus.description}; targets of the training part by the model '{teacher}'",
        train=text,
        parts={},
    ).check()


def _write_once(path: Path, lines: Iterator[str]) -> None:
    if not path.exists():
        with atomic_file(path, "w") as file:
            file.writelines(f"{line}\n" for line in lines)


def _chosen(found: Any, corpus: Corpus) -> Iterator[str]:
    """Yield the translation of each training pair that is the closest to its reference."""
    references = corpus.train.targets()
    with Progress(len(corpus.train), "choosing translations", "sentences") as progress:
        for line, reference in zip(read_lines(found), references, strict=True):
            texts = [one["text"] for one in json.loads(line)["translations"]]
            yield texts[closest(texts, reference, corpus.target_language)]
            progress.add(1)


@functools.cache
def _sentence_bleu(language: str | None) -> Any:
    from sacrebleu.metrics import BLEU

    # As `sacrebleu.sentence_bleu`.
    return BLEU(effective_order=True, tokenize=bleu_tokenizer(language))


def closest(hypotheses: Sequence[str], reference: str, language: str | None = None) -> int:
    """Return which hypothesis has the best sentence BLEU; the first of those that are equally good.

    >>> closest(["a small cat", "a small dog runs", "a small dog ran"], "the small dog runs")
    1
    """
    score = _sentence_bleu(language).sentence_score
    wanted = [normalize(reference)]
    scores = [score(normalize(one), wanted).score for one in hypotheses]
    return scores.index(max(scores))


class DistilledRun(Run):
    """The run of a student, whose tokenizer is its teacher's, and whose report compares both."""

    def __init__(
        self,
        teacher: str | os.PathLike[str],
        corpus: Corpus,
        config: TranslationConfig,
        folder: str | os.PathLike[str],
        *,
        finish: bool = False,
    ):
        self.teacher = RunFolder(teacher)
        there = self.teacher.settings()
        names = ("vocabulary_size", "tokenizer_algorithm", "symbols", "source_prefix")
        known = {name: there[name] for name in names if name in there}
        super().__init__(corpus, dataclasses.replace(config, **known), folder, finish=finish)
        self.more_settings = {
            "tokenizer_fingerprint": Tokenizer.load(self.teacher.tokenizer).fingerprint()
        }

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The teacher's tokenizer, kept in the student's folder."""
        own = self.shared / "tokenizer"
        with chief_first():
            if not Tokenizer.is_saved_in(own):
                Tokenizer.load(self.teacher.tokenizer).save(own)
            return Tokenizer.load(own)

    def more_evaluation(self, text: Sentences, translations: Sequence[str]) -> dict[str, Any]:
        """Return the scores of teacher and student, and whether they differ by more than chance."""
        kept, _ = own_translations({"teacher": self.teacher})
        both = runs_report({**kept, "student": translations}, text)
        report = self.teacher.finished_report() or {}
        parameters = {"teacher": report.get("parameters", 0), "student": self.model.count_params()}
        return {"teacher": {**both, "parameters": parameters}}
