"""How fast does text become batches, and how much memory does this take? On generated text like WMT14.

Writes pairs with Zipf-distributed words and sentence lengths like those of WMT14 (about 25 words on
average), trains a tokenizer on them, builds the token store and reads an epoch of batches. Usage:

    python benchmarks/data_pipeline.py --pairs 1000000 --record

The text has no meaning; it is only for measuring speed.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import add_record_option, run_facts, write_record

LETTERS = {"en": "etaoinshrdlucmfwypvbgkjqxz", "de": "enisratdhulcgmobwfkzpvüäößjyxq"}
WORDS = 250_000
CHUNK = 20_000


def make_words(language: str, random: np.random.Generator) -> np.ndarray:
    """Different words, the frequent ones short; some capitalised, some with a comma or full stop."""
    letters = np.array(list(LETTERS[language]))
    weights = 1 / (np.arange(len(letters)) + 3.0)
    lengths = np.clip(random.poisson(np.log(np.arange(WORDS) + 2) * 0.75), 1, 24)
    drawn = random.choice(letters, lengths.sum(), p=weights / weights.sum())
    text, ends = "".join(drawn), np.cumsum(lengths)
    words = [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    capital = random.random(WORDS) < (0.3 if language == "de" else 0.12)
    marks = random.choice(["", ",", ".", "'s", "-"], WORDS, p=[0.9, 0.04, 0.04, 0.01, 0.01])
    return np.array(
        [
            (word.capitalize() if big else word) + str(mark)
            for word, big, mark in zip(words, capital, marks, strict=True)
        ],
        dtype=object,
    )


def write_pairs(folder: Path, name: str, pairs: int, seed: int = 1) -> None:
    """Write `name.en` and `name.de`."""
    random = np.random.default_rng(seed)
    vocabulary = {language: make_words(language, np.random.default_rng(7)) for language in LETTERS}
    chances = 1 / (np.arange(WORDS) + 2.7)
    cumulative = np.cumsum(chances / chances.sum())
    for start in range(0, pairs, CHUNK):
        count = min(CHUNK, pairs - start)
        english = np.clip(np.exp(random.normal(3.03, 0.62, count)), 1, 180).astype(int)
        german = np.clip(english * np.exp(random.normal(-0.05, 0.16, count)), 1, 180).astype(int)
        for side, lengths in (("en", english), ("de", german)):
            ranks = np.searchsorted(cumulative, random.random(lengths.sum()))
            words = vocabulary[side][np.minimum(ranks, WORDS - 1)].tolist()
            ends = np.cumsum(lengths).tolist()
            begins = [0, *ends[:-1]]
            lines = zip(begins, ends, strict=True)
            with open(folder / f"{name}.{side}", "a", encoding="utf-8") as file:
                file.writelines(" ".join(words[begin:end]) + "\n" for begin, end in lines)


def measure(folder: Path, vocabulary_size: int, batch_tokens: int) -> dict[str, Any]:
    """Time each stage from text files to batches; CPU seconds, those of all threads together."""
    from keras_attention import TokenBatches, Tokenizer, TokenStore, load_corpus

    result: dict[str, Any] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        value = work()
        result[stage] = {
            "cpu_seconds": time.process_time() - cpu,
            "seconds": time.perf_counter() - wall,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        return value

    def read_epoch(batches: TokenBatches) -> None:
        for index in range(len(batches)):
            batches.batch(0, index)

    corpus = timed("text read, checked, counted", lambda: load_corpus("wmt14", folder))
    text = corpus.train
    tokenizer = timed(
        "tokenizer trained",
        lambda: Tokenizer.train(text.both_sides(at_most=2_000_000), vocabulary_size),
    )
    with tempfile.TemporaryDirectory(dir=folder) as stores:
        store = timed(
            "text to store", lambda: TokenStore.build(stores, text, tokenizer, verbose=False)
        )
        batches = timed("buckets chosen", lambda: TokenBatches(store, batch_tokens))
        timed("store to batches", lambda: read_epoch(batches))
        result["seconds_to_open_a_gigabyte"] = seconds_to_open(store.folder)
    result["pairs"] = len(text)
    result["tokens"] = store.metadata["source_tokens"] + store.metadata["target_tokens"]
    for stage in ("text to store", "store to batches"):
        result[stage]["tokens_per_core_second"] = result["tokens"] / result[stage]["cpu_seconds"]
    return result


def seconds_to_open(store: Path) -> float:
    """Seconds a gigabyte, in a process of its own: one process reads the same file once."""
    code = (
        "import sys, time; from keras_attention import TokenStore; start = time.perf_counter(); "
        "TokenStore(sys.argv[1]); print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", code, str(store)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(printed) / sum(path.stat().st_size for path in store.iterdir()) * 1e9


def main() -> None:
    """Write the text, measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--vocabulary-size", type=int, default=37_000)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    add_record_option(parser)
    options = parser.parse_args()
    facts = run_facts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"train": options.pairs, "newstest2013": 3000, "newstest2014": 3003}
        for seed, (name, count) in enumerate(files.items(), start=1):
            write_pairs(folder, name, count, seed)
        result = measure(folder, options.vocabulary_size, options.batch_tokens)
    print(f"{result['pairs']:,} pairs, {result['tokens']:,} tokens")
    print(f"opening a store, checksums compared: {result['seconds_to_open_a_gigabyte']:.2f} s/GB")
    print(f"{'stage':32} {'CPU s':>8} {'tokens/s a core':>16} {'peak GiB':>9}")
    for stage, figures in result.items():
        if isinstance(figures, dict):
            speed = figures.get("tokens_per_core_second")
            text = "" if speed is None else f"{speed:,.0f}"
            peak = figures["peak_bytes"] / 2**30
            print(f"{stage:32} {figures['cpu_seconds']:8.1f} {text:>16} {peak:9.2f}")
    write_record(options.record, facts, "data_pipeline", {"pairs": options.pairs}, figures=result)


if __name__ == "__main__":
    main()
