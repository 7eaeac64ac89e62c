"""Does a trained model translate a sentence the same way in every batch?

Translates the first sentences of a run's test set in batches of 1, 7 and 64 sentences and in shuffled
order, and counts the translations that differ. Usage:

    python tools/verify_batches.py RUN_FOLDER --source-file test.en
"""

import argparse
import dataclasses
import gzip
import random
from pathlib import Path

import keras

from keras_attention import Tokenizer, Translator


def read_lines(path: Path, count: int) -> list[str]:
    """Return the first lines of a text file, plain or gzip."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as stream:
        return [line.rstrip("\n") for line, _ in zip(stream, range(count), strict=False)]


def main() -> None:
    """Print, for every kind of batches, how many translations differ from those in batches of 64."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--source-file", type=Path, required=True, help="sentences to translate")
    parser.add_argument("--sentences", type=int, default=200)
    options = parser.parse_args()

    model = keras.saving.load_model(options.run / "model.keras", compile=False)
    translator = Translator(model, Tokenizer.load(options.run / "tokenizer"), batch_size=64)
    sources = read_lines(options.source_file, options.sentences)
    expected = translator(sources)
    for batch_size in (1, 7):
        got = dataclasses.replace(translator, batch_size=batch_size)(sources)
        report(f"batches of {batch_size}", expected, got)
    order = list(range(len(sources)))
    random.Random(1).shuffle(order)
    shuffled = translator([sources[index] for index in order])
    restored = dict(zip(order, shuffled, strict=True))
    report("shuffled order", expected, [restored[index] for index in range(len(sources))])


def report(name: str, expected: list[str], got: list[str]) -> None:
    """Print how many of two lists of translations differ."""
    different = sum(a != b for a, b in zip(expected, got, strict=True))
    print(f"{name}: {different} of {len(expected)} translations differ from batches of 64")


if __name__ == "__main__":
    main()
