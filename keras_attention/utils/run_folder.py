"""The folder of a run: the names of its files, which run owns it, and which process works in it.

Only this module knows the names of the files. It is in `utils` because `decoding` and `evaluation` open
the folder of a run as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_attention.utils.agreed import is_told_here
from keras_attention.utils.checks import did_you_mean
from keras_attention.utils.files import (
    LOCK,
    PARTIAL,
    DamagedFile,
    read_json,
    remove_leftovers,
    write_json,
)
from keras_attention.utils.folder import Folder, claimed

# A key that the configuration of every run has, and the config.json of other programs has not.
FINGERPRINT = "train_fingerprint"
# Errors that say that a run cannot be started like this.
REFUSALS = (ValueError, TypeError, ImportError)
SEARCH_SETTINGS = ("beam_size", "length_penalty")
# What checksums in the settings are of; other fingerprints are of a part of the text.
CHECKSUMS = {
    "start_fingerprint": "pretrained model that it starts from",
    "guided_alignment_sha256": "file of word alignments",
}
CHECKPOINT = Folder(
    "checkpoint", "manifest.json", "variables", "Use a copy of it, or another checkpoint."
)
# The settings that the tokenizer depends on.
TOKENIZER_FIELDS = (
    *(FINGERPRINT, "start_fingerprint", "vocabulary_size", "tokenizer_algorithm"),
    *("symbols", "source_prefix", "languages"),
)


class RunFolder:
    """The files of a run. Nothing is made or read before a method is called.

    Example:

    >>> import tempfile
    >>> run = RunFolder(Path(tempfile.mkdtemp()) / "run")
    >>> run.claim({"steps": 5, "train_fingerprint": "ab"})
    >>> RunFolder(run.path).settings()["steps"]
    5
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.tokenizer = self.path / "tokenizer"
        self.store = self.path / "store"  # folder of the token stores
        self.checkpoints = self.path / "checkpoints"
        # The average of the last checkpoints, as a checkpoint.
        self.average = self.path / "averaged"
        self.model = self.path / "model.keras"
        self.spec = self.path / "spec"  # folder of the model's spec, which can be run without Keras
        # Translations of the test set, one per line.
        self.translations = self.path / "translations.txt"
        # The attention of some sentences, as a web page.
        self.attention = self.path / "attention.html"
        self.references = self.path / "references.txt"  # their reference translations
        self.report = self.path / "report.json"
        self.report_text = self.path / "report.txt"  # the same as readable text
        self.logs = self.path / "logs"
        # Folder in `logs` for the loss of the validation set.
        self.validation_logs = self.logs / "validation"
        self.metrics = self.path / "metrics.jsonl"

    @property
    def name(self) -> str:
        """Name of the folder, which is the name of the run."""
        return self.path.resolve().name

    def settings(self, needed: Collection[str] = ()) -> dict[str, Any]:
        """Return the settings of the run in this folder."""
        try:
            settings = read_json(self.config, "Put back a copy of it.")
        except DamagedFile:
            if self.has_trained():
                raise
            settings = {}
        except OSError:
            settings = {}
        if FINGERPRINT not in settings:
            raise ValueError(
                f"'{self.path}' is not the folder of a run: it has no {self.config.name} of one. "
                "Give the folder that a training run has written."
            )
        missing = [name for name in needed if name not in settings]
        if missing:
            raise ValueError(
                f"'{self.config}' lacks {', '.join(missing)}: another version of keras_attention wrote "
                "it, or somebody changed it. Use the version that trained the run."
            )
        return settings

    def finished_report(self) -> dict[str, Any] | None:
        """Return the report if the run is finished, else None."""
        if not self.report.exists():
            return None
        remedy = "Move it away: the same command writes it again."
        return read_json(self.report, remedy)

    def longest_source(self) -> int | None:
        """Return the tokens of the longest source in training, end token included; None if not known.

        A run that is not finished knows only the limit of its training.
        """
        report: dict[str, Any] = {}
        with contextlib.suppress(DamagedFile):
            report = self.finished_report() or {}
        limit = self.settings().get("max_length")
        return report.get("batches", {}).get("longest_source", limit)

    def check_finished(self) -> None:
        """Raise ValueError unless the run has written its model."""
        if not self.model.is_file():
            raise ValueError(
                f"The run in '{self.path}' is not finished: it has no {self.model.name}. To continue it, "
                f"give the command that started it --output-dir {shlex.quote(str(self.path))}. To "
                "translate with what it has learned, give `keras-attention translate` --checkpoint last."
            )

    def check_checkpoint(self, name: str) -> None:
        """Raise a ValueError unless it is "last", "average", "best" or the name of one that is there."""
        names = sorted(path.name for path in self.checkpoints.glob("update-*"))
        if not names:
            raise ValueError(f"The run in '{self.path}' has no checkpoint yet.")
        known = ("last", "average", *(["best"] if self.best_checkpoint() else []), *names)
        if name not in known:
            raise ValueError(
                f"A checkpoint must be one of {', '.join(known)}.{did_you_mean(name, known)} "
                f"Received: {name!r}"
            )

    def trained_model(self) -> Path:
        """Return the path of `model.keras`, after comparing the checksums that its zip archive has."""
        self.check_finished()
        try:
            with zipfile.ZipFile(self.model) as archive:
                part = archive.testzip()
            problem = part and f"its part '{part}' was changed"
        except Exception as error:  # Damaged bytes raise errors of many kinds there.
            problem = f"it cannot be read ({error})"
        if problem:
            raise DamagedFile(
                f"'{self.model}' is damaged: {problem}. Move it and {self.report.name} away: the command "
                "that started the run writes both again."
            )
        return self.model

    def last_checkpoint(self) -> dict[str, Any]:
        """Return what the manifest of the last checkpoint says; {} if there is none that can be read.

        Its weights are not verified.
        """
        for path in sorted(self.checkpoints.glob("update-*"), reverse=True):
            with contextlib.suppress(ValueError):
                return CHECKPOINT.read(path, verify=False)
        return {}

    def best_checkpoint(self) -> dict[str, Any] | None:
        """Return the best checkpoint, if the run keeps it: its `name`, and the `value` that says so."""
        state = self.last_checkpoint().get("callbacks", {}).get("BestCheckpoint", {})
        best = state.get("best")
        return best and {"name": f"update-{best['updates']:08d}", "value": best["value"]}

    def check(
        self,
        settings: Mapping[str, Any],
        changeable: Collection[str] = (),
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse a folder that holds something else than this run. Nothing is changed.

        `settings` decide the result of the run, the fingerprint of the training text among them; `reasons`
        say, as the end of a sentence, why one of them may not change.
        """
        there = self.check_own()
        different = differences(there, _as_json(settings), changeable)
        if there and different and self.has_trained():
            pairs, reasons = "; ".join(different.values()), reasons or {}
            why = dict.fromkeys(f" Here {reasons[key]}." for key in different if key in reasons)
            raise ValueError(
                f"The run in '{self.path}' has another configuration ({pairs}). "
                "Nothing was changed there. Choose another output folder, or the same settings to "
                f"continue that run.{''.join(why)}"
            )

    def check_own(self) -> dict[str, Any]:
        """Return the settings of the run in this folder, {} if there is none; refuse what is no run's."""
        foreign = ValueError(
            f"'{self.path}' exists and is not the folder of a run. Nothing was changed there. "
            "Choose another output folder."
        )
        if self.config.exists():
            try:
                return self.settings()
            except DamagedFile:
                raise
            except ValueError:
                raise foreign from None
        # A run that is killed at its start leaves temporary files.
        own = {f"{mark}{self.config.name}" for mark in (PARTIAL, LOCK)}
        is_file = self.path.exists() and not self.path.is_dir()
        if is_file or (self.path.exists() and {path.name for path in self.path.iterdir()} - own):
            raise foreign
        return {}

    def claim(self, settings: Mapping[str, Any], changeable: Collection[str] = ()) -> None:
        """Write the settings of this run into the folder, after `check`.

        A run that has not trained yet may be restarted with other settings: the files that depend on them
        are deleted.
        """
        self.check(settings, changeable)
        wanted = _as_json(settings)
        self.path.mkdir(parents=True, exist_ok=True)
        self.remove_leftovers()
        there = self.check_own()
        if there == wanted:
            return
        if there and any(there.get(name) != wanted.get(name) for name in TOKENIZER_FIELDS):
            for folder in (self.tokenizer, self.store):
                shutil.rmtree(folder, ignore_errors=True)
        write_json(self.config, wanted)

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed processes, but not those of running ones."""
        for folder in (self.path.resolve().parent, self.path, self.store, self.checkpoints):
            if folder.is_dir():
                remove_leftovers(folder)

    @contextlib.contextmanager
    def locked(self, timeout: float = 0) -> Iterator[None]:
        """Keep other processes from writing into this folder. A killed process holds no lock.

        If the start of a new run is refused within the block, before it trains, what was made is removed.
        """
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            with claimed(self.path, "run", timeout):
                is_new = not self.path.exists() or not any(self.path.iterdir())
                try:
                    yield
                except REFUSALS as error:
                    # Not if another process has failed: the same start may succeed later.
                    if is_new and is_told_here(error):
                        self._remove_prepared()
                    raise
        except Exception:
            for path in missing:
                with contextlib.suppress(OSError):
                    path.rmdir()  # only if it is empty
            raise

    def _remove_prepared(self) -> None:
        prepared = {self.tokenizer, self.store, self.config}
        if self.path.is_dir() and {*self.path.iterdir()} <= prepared:
            shutil.rmtree(self.tokenizer, ignore_errors=True)
            shutil.rmtree(self.store, ignore_errors=True)
            self.config.unlink(missing_ok=True)  # last: without it, the folder is no run's

    def has_trained(self) -> bool:
        """Whether the run has written a checkpoint or its report."""
        folder = self.checkpoints
        return self.report.exists() or (folder.is_dir() and any(folder.glob("update-*")))


def differences(
    there: Mapping[str, Any], wanted: Mapping[str, Any], changeable: Collection[str] = ()
) -> dict[str, str]:
    """Return in words, by its name, each setting that differs and may not."""
    return {
        name: _difference(name, there.get(name), wanted.get(name))
        for name in sorted({*there, *wanted})
        if name not in changeable and there.get(name) != wanted.get(name)
    }


def _difference(name: str, there: Any, wanted: Any) -> str:
    """Return a setting of a run and the one asked for, in words: checksums tell a reader nothing.

    >>> _difference("train_fingerprint", "1f0c", "77ab")
    'the train text differs'
    >>> _difference("parts", {"web": "1f0c", "news": "5d5d"}, {"web": "77ab", "news": "5d5d"})
    "the text of the part 'web' differs"
    """
    if name == "parts" and there and wanted:
        parts = sorted({*there, *wanted})
        different = [f"'{part}'" for part in parts if there.get(part) != wanted.get(part)]
        return f"the text of the part {', '.join(different)} differs"
    what = CHECKSUMS.get(name, f"{name.removesuffix('_fingerprint')} text")
    if name in CHECKSUMS or name.endswith("_fingerprint"):
        return f"the {what} differs" if there and wanted else f"only one has a {what}"
    return f"{name}: {there!r} there, {wanted!r} asked for"


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as JSON reads them back: tuples become lists."""
    return json.loads(json.dumps(settings))
