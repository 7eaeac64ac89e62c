"""What `check_export` runs in a process of its own for each program: it translates, then it scores."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from keras_attention.data.preset_folders import Preset
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.export_folder import TOKENIZER_FOLDER
from keras_attention.recipes.export_readers import READERS, LoadedExport, Ours, Search
from keras_attention.spec.files import load_spec, save_spec
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import write_json

ORIGINAL = "original"
SPEC_FOLDER = "spec"


def write_original(translator: Any, folder: Path) -> None:
    """Write what `read_original` reads."""
    model = translator.model
    save_spec(model if isinstance(model, TransformerSpec) else model.spec(), folder / SPEC_FOLDER)
    translator.tokenizer.save(folder / TOKENIZER_FOLDER)


def read_original(folder: Path, search: Search) -> LoadedExport:
    """Return the translator that was written, which takes the fastest engine."""
    tokenizer = Tokenizer.load(folder / TOKENIZER_FOLDER)
    return Ours(Preset(load_spec(folder / SPEC_FOLDER), tokenizer, {}), search)


def main(job: str, result: str) -> None:
    """Do what a file says, and write what was found, or the error of what was given."""
    wanted = json.loads(Path(job).read_text(encoding="utf-8"))
    warnings.simplefilter("ignore")
    try:
        found = _found(**wanted)
    except (ValueError, OSError, ImportError) as error:
        found = {"error": str(error)}
    write_json(result, found)


def _found(
    folder: str,
    format: str,
    program: str,
    search: dict[str, Any],
    texts: list[str],
    pairs: list[list[str]],
) -> dict[str, Any]:
    load = read_original if format == ORIGINAL else READERS[format][program].load
    loaded = load(Path(folder), Search(**search))
    translations: list[str] = []
    seconds = 0.0
    if texts:
        loaded.translate(texts[:1])  # what is compiled or allocated first
        start = time.perf_counter()
        translations = loaded.translate(texts)
        seconds = time.perf_counter() - start
    peak_bytes = _peak_bytes()
    # Its own translations are scored, too.
    own = [list(pair) for pair in zip(texts, translations, strict=True)]
    apart = list(dict.fromkeys(map(tuple, [*pairs, *own])))
    scores = dict(zip(apart, loaded.score(*map(list, zip(*apart, strict=True))), strict=True))
    return {
        "translations": translations,
        "seconds": seconds,
        "peak_bytes": peak_bytes,
        "precision": loaded.precision,
        "scores": [scores[tuple(pair)] for pair in pairs],
        "own_scores": [scores[tuple(pair)] for pair in own],
    }


def _peak_bytes() -> int:
    """Return the most memory that this process has had; 0 where it is not known.

    Linux' `ru_maxrss` of a child begins with that of its parent, so it is not taken there.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0
