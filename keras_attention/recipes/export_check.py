"""`check_export`: whether what was exported is what was trained."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras_attention
from keras_attention.data.model_card import languages_of
from keras_attention.data.normalization import normalize
from keras_attention.evaluation.bleu import corpus_bleu
from keras_attention.interop.export_folder import MANIFEST
from keras_attention.recipes.export_probe import ORIGINAL, write_original
from keras_attention.recipes.export_readers import READERS, Reader, Search
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import (
    check_has,
    check_integer,
    check_number,
    check_path,
    check_texts,
)
from keras_attention.utils.files import read_signed_json
from keras_attention.utils.progress import activity
from keras_attention.utils.sides import encode_side

if TYPE_CHECKING:
    from keras_attention.decoding.translator import Translator

# Of log P for each token: the largest difference that is rounding; of rounded weights mean and largest.
TOLERANCE, ROUNDED_MEAN, ROUNDED_LARGEST = 1e-3, 0.2, 2.0
# Share of the sentences that must be equal, where programs have the same rules; one may always differ.
EQUAL_SHARE = 0.995
# A target that is less likely holds a token that is never produced, which each program says in its own way.
NEVER = -1e20
SHOWN = 5


class ProgramCheck(NamedTuple):
    """What one program made of the texts.

    Attributes:
        program: Its name; `"original"` is the translator itself.
        precision: Of its weights.
        equal_sentences: Share of the translations that are those of the original.
        equal_tokens: Share of their tokens that are those of the original, in order.
        score_difference: Largest difference of the log-probability of a given target, for each token of it.
        bleu: BLEU, with the references or else the translations of the original.
        bytes: Size on disk.
        seconds: Time to translate all texts, without loading.
        peak_bytes: Peak memory of the process that loaded and translated; 0 where it is not known.
    """

    program: str
    precision: str
    equal_sentences: float
    equal_tokens: float
    score_difference: float
    bleu: float
    bytes: int
    seconds: float
    peak_bytes: int


class Difference(NamedTuple):
    """A sentence that a program translated in another way, and how probable each finds both translations.

    If both programs find the same numbers, the search made the difference, or rounding at a near tie.
    """

    program: str
    source: str
    original: str
    other: str
    original_scores: tuple[float, float]
    other_scores: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class ExportCheck:
    """What `check_export` found. It prints as a table.

    Attributes:
        format: The format.
        folder: The folder of the export.
        sentences: Number of texts.
        beam_size: Number of beams.
        programs: The original, and each program that has read the export.
        differences: The sentences with different translations.
        problems: What is wrong; empty if the export is what was trained.
    """

    format: str
    folder: str
    sentences: int
    beam_size: int
    programs: tuple[ProgramCheck, ...]
    differences: tuple[Difference, ...]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {
            **dataclasses.asdict(self),
            "programs": [program._asdict() for program in self.programs],
            "differences": [each._asdict() for each in self.differences],
            "passed": self.passed,
        }

    def __str__(self) -> str:
        rows = [("", "weights", "sentences", "tokens", "log P", "BLEU", "MB", "seconds", "peak MB")]
        rows += [
            (
                each.program,
                each.precision,
                f"{100 * each.equal_sentences:.1f} %",
                f"{100 * each.equal_tokens:.1f} %",
                f"{each.score_difference:.1e}",
                f"{each.bleu:.2f}",
                f"{each.bytes / 1e6:.1f}",
                f"{each.seconds:.1f}",
                f"{each.peak_bytes / 1e6:.0f}" if each.peak_bytes else "?",
            )
            for each in self.programs
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        about = f"{self.format}, {self.sentences} sentences, beam of {self.beam_size}"
        for each in self.differences[:SHOWN]:
            lines += [
                f"{each.program} differs: {each.source!r}",
                f"  original {each.original!r}, log P {_two(each.original_scores)}",
                f"  export   {each.other!r}, log P {_two(each.other_scores)}",
            ]
        more = len(self.differences) - SHOWN
        lines += [f"{more} more sentences differ."] if more > 0 else []
        verdict = [f"WRONG: {problem}" for problem in self.problems] or ["The export is the model."]
        return "\n".join([about, *lines, *verdict])


def check_export(
    translator: Translator,
    folder: str | os.PathLike[str],
    texts: Iterable[str],
    references: Iterable[str] | None = None,
    *,
    beam_size: int = 1,
    tolerance: float | None = None,
) -> ExportCheck:
    """Compare an export with the translator that it was made of, by the programs that it was made for.

    The translator and each program that reads the format, in a process of its own each, translate the texts
    and score given targets: the translations of the translator, and the references. CTranslate2 reads its
    folder itself; one of Hugging Face is read by this package and, if it is installed, by transformers; ONNX
    files are run by onnxruntime, a SavedModel by TensorFlow.

    The export passes if log-probabilities agree and, where the programs search by the same rules, the
    translations. Greedy search has the same rules everywhere. With more beams CTranslate2 and transformers
    have their own rules: see `export_ctranslate2`.

    Args:
        translator: The translator that was exported.
        folder: The folder of the export.
        texts: Sentences, about as those that it will translate; empty ones are skipped.
        references: Their translations, for BLEU. Defaults to none: BLEU is that with the translations of the
            translator.
        beam_size: Number of beams. Defaults to 1, greedy search.
        tolerance: Largest difference of log P(target) for each token of it. Defaults to 0.001; of rounded
            weights it is 2, and the mean over the targets 0.2.

    Returns:
        An `ExportCheck`; `passed` says whether the export is the model.

    Raises:
        ValueError: If an argument is out of range, or the folder holds no export of ours whose format has a
            reader.
        ImportError: If the library is missing that reads it.

    Example:

    >>> from keras_attention.decoding.translator import Translator
    >>> translator = Translator.from_preset("demo_en_de")
    >>> path = translator.export(tempfile.mkdtemp() + "/onnx", "onnx")  # doctest: +SKIP
    >>> check_export(translator, path, ["The dog sleeps."]).passed  # doctest: +SKIP
    True
    """
    check_has("translator", translator, "a Translator", "model", "tokenizer", "beam_size")
    if not isinstance(translator.model, TransformerSpec):
        check_has(
            "translator.model", translator.model, "a Transformer, or a TransformerSpec", "spec"
        )
    folder = check_path("folder", folder)
    given = check_texts("texts", texts)
    wanted = None if references is None else check_texts("references", references)
    if wanted is not None and len(wanted) != len(given):
        raise ValueError(
            f"Each text needs its reference. Received: {len(given)} texts, {len(wanted)} references"
        )
    check_integer("beam_size", beam_size, 1)
    if tolerance is not None:
        check_number("tolerance", tolerance, 0.0)
    full = [i for i, text in enumerate(given) if normalize(text)]
    if not full:
        raise ValueError("`texts` must hold at least one that is not empty.")
    kind, readers = readers_of(folder)
    search = Search(beam_size, translator.length_penalty, translator.max_extra_length)
    with tempfile.TemporaryDirectory(prefix="keras_attention-") as temporary:
        original = Path(temporary) / ORIGINAL
        write_original(translator, original)
        check = _Check(
            original,
            translator.tokenizer,
            search,
            [given[i] for i in full],
            None if wanted is None else [wanted[i] for i in full],
            (languages_of(translator.card) or (None, None))[1],
        )
        for name, reader in readers.items():
            check.compare(folder, kind, name, reader, tolerance)
    return ExportCheck(
        kind,
        str(folder),
        len(full),
        beam_size,
        tuple(check.programs),
        tuple(check.differences),
        tuple(check.problems),
    )


def readers_of(folder: Path) -> tuple[str, dict[str, Reader]]:
    """Return the format of an export, and the programs here that read it."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"'{folder}' is no export of this package: it has no {MANIFEST}.")
    kind = read_signed_json(folder / MANIFEST).get("exported")
    if kind not in READERS:
        raise ValueError(f"'{folder}' is no export that can be checked: {', '.join(READERS)} can.")
    for name, reader in READERS[kind].items():
        missing = reader.missing()
        if missing and not reader.is_optional:
            raise ImportError(
                f"The check reads '{folder}' by {name}; not installed: pip install {' '.join(missing)}"
            )
    return kind, {name: reader for name, reader in READERS[kind].items() if not reader.missing()}


class _Check:
    """Compares the programs, one after the other."""

    def __init__(
        self,
        original: Path,
        tokenizer: Any,
        search: Search,
        texts: list[str],
        references: list[str] | None,
        language: str | None,
    ):
        self._language = language
        self._original, self._tokenizer, self._search = original, tokenizer, search
        self._texts, self._references = texts, references
        self.programs: list[ProgramCheck] = []
        self.differences: list[Difference] = []
        self.problems: list[str] = []
        given = list(zip(texts, references or [], strict=False))
        self._found = _probe(original, ORIGINAL, ORIGINAL, search, texts, given)
        # The targets that all score: the translations of the original, then the references.
        own = zip(texts, self._found["translations"], strict=True)
        self._pairs = [*own, *given]
        self._scores: list[float] = [*self._found["own_scores"], *self._found["scores"]]
        targets = [target for _, target in self._pairs]
        # With the end token.
        self._lengths = [len(ids) + 1 for ids in encode_side(tokenizer, targets, "target")]
        self.programs.append(self._row(ORIGINAL, original, self._found, 0.0))

    def compare(
        self, folder: Path, kind: str, name: str, reader: Reader, tolerance: float | None
    ) -> None:
        """Let a program read the folder, and note what differs."""
        try:
            found = _probe(folder, kind, name, self._search, self._texts, self._pairs)
        except ValueError as error:
            self.problems.append(str(error))
            return
        scores = found["scores"]
        apart = [
            abs(ours - theirs) / length if ours > NEVER else 0.0
            for ours, theirs, length in zip(self._scores, scores, self._lengths, strict=True)
        ]
        # NaN is the largest difference of all.
        worst = max(range(len(apart)), key=lambda i: (apart[i] != apart[i], apart[i]))
        row = self._row(name, folder, found, apart[worst])
        self.programs.append(row)
        self._note_differences(name, found)
        is_rounded = tolerance is None and row.precision != "float32"
        if tolerance is None:
            tolerance = ROUNDED_LARGEST if is_rounded else TOLERANCE
        # Of a thousand targets, one or another suffers much from weights that are in order.
        scored = [each for each, ours in zip(apart, self._scores, strict=True) if ours > NEVER]
        mean = statistics.fmean(scored or [0.0])
        wrong = None
        if is_rounded and not mean <= ROUNDED_MEAN:
            wrong = f"{mean:.2g} for each token of all targets on average, at most {ROUNDED_MEAN:g}"
        elif not apart[worst] <= tolerance:
            wrong = f"{apart[worst]:.2g} for each token, at most {tolerance:g}"
        if wrong:
            text, target = self._pairs[worst]
            self.problems.append(
                f"{name} finds log P {scores[worst]:.4f} for the target {target!r} of {text!r}, the original "
                f"{self._scores[worst]:.4f}: {wrong} is rounding. The weights differ."
            )
        number = round(len(self._texts) * (1.0 - row.equal_sentences))
        same_rules = reader.searches_alike or self._search.beam_size == 1
        if (
            same_rules
            and row.precision == "float32"
            and number > max(1, len(self._texts) * (1 - EQUAL_SHARE))
        ):
            self.problems.append(
                f"{name} translates {number} of {len(self._texts)} sentences in another way than the "
                f"original, which searches by the same rules; {100 * EQUAL_SHARE:.1f} % must be equal."
            )

    def _row(
        self, name: str, folder: Path, found: dict[str, Any], score_difference: float
    ) -> ProgramCheck:
        ours, theirs = self._found["translations"], found["translations"]
        equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
        return ProgramCheck(
            name,
            found["precision"],
            equal / len(ours),
            self._equal_tokens(ours, theirs),
            score_difference,
            corpus_bleu(theirs, self._references or ours, language=self._language).score,
            sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            found["seconds"],
            found["peak_bytes"],
        )

    def _equal_tokens(self, ours: Sequence[str], theirs: Sequence[str]) -> float:
        equal = total = 0
        sides = (encode_side(self._tokenizer, texts, "target") for texts in (ours, theirs))
        for one, other in zip(*sides, strict=True):
            blocks = difflib.SequenceMatcher(None, one, other, False).get_matching_blocks()
            equal += 2 * sum(block.size for block in blocks)
            total += len(one) + len(other)
        return equal / total if total else 1.0

    def _note_differences(self, name: str, found: dict[str, Any]) -> None:
        ours, theirs = self._found["translations"], found["translations"]
        rows = [i for i, text in enumerate(theirs) if text != ours[i]]
        if not rows:
            return
        pairs = [(self._texts[i], theirs[i]) for i in rows]
        again = _probe(self._original, ORIGINAL, ORIGINAL, self._search, [], pairs)
        for i, other in zip(rows, again["scores"], strict=True):
            scores = ((self._scores[i], other), (found["scores"][i], found["own_scores"][i]))
            self.differences.append(Difference(name, self._texts[i], ours[i], theirs[i], *scores))


def _probe(
    folder: Path,
    kind: str,
    name: str,
    search: Search,
    texts: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return what `export_probe` finds in a process of its own, whose memory is its own."""
    with tempfile.TemporaryDirectory(prefix="keras_attention-") as temporary:
        job, result = (Path(temporary) / name for name in ("job.json", "result.json"))
        wanted = {
            "folder": str(folder.resolve()),
            "format": kind,
            "program": name,
            "search": search._asdict(),
            "texts": list(texts),
            "pairs": [list(pair) for pair in pairs],
        }
        job.write_text(json.dumps(wanted), encoding="utf-8")
        program = (
            "import keras_attention_light, sys; from keras_attention.recipes.export_probe import main; "
            "main(*sys.argv[1:])"
        )
        paths = [str(Path(keras_attention.__file__).parents[1]), os.environ.get("PYTHONPATH")]
        settings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        if "keras" in sys.modules:
            settings["KERAS_BACKEND"] = running_backend()
        with activity(f"{name} translates and scores"):
            done = subprocess.run(
                [sys.executable, "-c", program, str(job), str(result)],
                env=settings,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
            )
        if not result.is_file():
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(
                f"The process that ran {name} ended with code {done.returncode}: {last[0]}"
            )
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    if "error" in found:
        raise ValueError(f"{name} cannot translate or score the texts: {found['error']}")
    return found


def _two(scores: tuple[float, float]) -> str:
    return f"{scores[0]:.4f} and of the other {scores[1]:.4f}"
