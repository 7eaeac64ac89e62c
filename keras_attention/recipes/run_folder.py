"""The folder of a run: it belongs to one configuration and never loses anything."""

import contextlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_attention.utils.files import write_atomically

# What every configuration of a run holds, and other programs' config.json do not.
FINGERPRINT = "train_fingerprint"


class RunFolder:
    """Claims a folder for one configuration, or says whose it is.

    Args:
        path: The folder; made if absent.
        config: JSON-serialisable settings that decide the result of the run, the fingerprint of the
            training text among them.
        changeable: Names of settings that a run may change when it goes on, such as its budget.

    Raises:
        ValueError: If the folder holds the run of another configuration, or other files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: dict[str, Any],
        changeable: Collection[str] = (),
    ):
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        config = json.loads(json.dumps(config))
        if self.config_file.exists() and list(self.path.iterdir()) != [self.config_file]:
            self._check_same(config, changeable)
        elif self.config_file.exists():  # A run that failed before it made anything.
            self._configured()
            self._write(config)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise self._foreign()
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(config)

    @property
    def report_file(self) -> Path:
        """Where the report of the finished run lies."""
        return self.path / "report.json"

    def finished_report(self) -> dict[str, Any] | None:
        """The report, if this run has been finished before."""
        if not self.report_file.exists():
            return None
        return json.loads(self.report_file.read_text("utf-8"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process out that would write into the same folder; a killed one does not.

        Raises:
            ValueError: If another process works there.
        """
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process works on the run in '{self.path}'. Nothing was changed there. "
                    "Wait for it, stop it, or choose another output folder."
                ) from None
            except OSError:
                pass  # A file system without locks.
            yield
        finally:
            os.close(descriptor)

    def _write(self, config: dict[str, Any]) -> None:
        write_atomically(self.config_file, json.dumps(config, indent=2) + "\n")

    def _foreign(self) -> ValueError:
        return ValueError(
            f"'{self.path}' exists and is not the folder of a run. Nothing was changed there. "
            "Choose another output folder."
        )

    def _configured(self) -> dict[str, Any]:
        """The configuration that is there; only a run's own file has a corpus' fingerprint."""
        try:
            there = json.loads(self.config_file.read_text("utf-8"))
        except ValueError:
            raise self._foreign() from None
        if not isinstance(there, dict) or FINGERPRINT not in there:
            raise self._foreign()
        return there

    def _check_same(self, config: dict[str, Any], changeable: Collection[str]) -> None:
        there = self._configured()
        different = [
            f"{key}: {there.get(key)!r} there, {config.get(key)!r} asked for"
            for key in sorted({*there, *config})
            if key not in changeable and there.get(key) != config.get(key)
        ]
        if different:
            raise ValueError(
                f"The run in '{self.path}' has another configuration ({'; '.join(different)}). "
                "Nothing was changed there. Choose another output folder, or the same settings to go "
                "on with that run."
            )
        if there != config:
            self._write(config)
