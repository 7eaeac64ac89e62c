"""How fast does text become batches, and how much memory does this take? On generated text like WMT14.

Writes pairs with Zipf-distributed words and sentence lengths like those of WMT14 (about 25 words on
average), trains a tokenizer on them, builds the token store and reads an epoch of batches. Usage:

    python benchmarks/data_pipeline.py --pairs 1000000 --plan
    python benchmarks/data_pipeline.py --pairs 1000000 --write-only DIR     # only the text files

The text has no meaning; it is only for measuring speed.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import run_facts
from records import record_path, write_figures

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
    files = {side: open(folder / f"{name}.{side}", "w", encoding="utf-8") for side in LETTERS}
    for start in range(0, pairs, CHUNK):
        count = min(CHUNK, pairs - start)
        english = np.clip(np.exp(random.normal(3.03, 0.62, count)), 1, 180).astype(int)
        german = np.clip(english * np.exp(random.normal(-0.05, 0.16, count)), 1, 180).astype(int)
        for side, lengths in (("en", english), ("de", german)):
            ranks = np.searchsorted(cumulative, random.random(lengths.sum()))
            words = vocabulary[side][np.minimum(ranks, WORDS - 1)].tolist()
            ends = np.cumsum(lengths).tolist()
            begins = [0, *ends[:-1]]
            lines = (
                " ".join(words[begin:end]) + "\n" for begin, end in zip(begins, ends, strict=True)
            )
            files[side].writelines(lines)
    for file in files.values():
        file.close()


def write_corpus(folder: Path, pairs: int) -> None:
    """Write `train.*`, `newstest2013.*` and `newstest2014.*`, as `--corpus wmt14 --data-dir` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate(
        {"train": pairs, "newstest2013": 3000, "newstest2014": 3003}.items(), start=1
    ):
        write_pairs(folder, name, count, seed)


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


def measure_plan(folder: Path) -> dict[str, Any]:
    """Time and peak memory of `examples/wmt14_en_de.py --corpus wmt14 --plan`, nothing prepared before."""
    example = Path(__file__).resolve().parent.parent / "examples" / "wmt14_en_de.py"
    arguments = ["--corpus", "wmt14", "--data-dir", str(folder), "--plan"]
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        environment = {**os.environ, "KERAS_ATTENTION_CACHE": cache}
        subprocess.run([sys.executable, str(example), *arguments], env=environment, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }


def main() -> None:
    """Write the text, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--vocabulary-size", type=int, default=37_000)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--plan", action="store_true", help="also run the example with --plan")
    parser.add_argument(
        "--write-only", type=Path, metavar="DIR", help="write the text there and exit"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--record",
        action="store_true",
        help="also write a record to benchmarks/results/, for the tables",
    )
    options = parser.parse_args()
    if options.write_only is not None:
        write_corpus(options.write_only, options.pairs)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), options.pairs)
        result = {}
        if options.plan:  # first: a child starts with its parent's memory
            result["examples/wmt14_en_de.py --plan"] = measure_plan(Path(folder))
        result |= measure(Path(folder), options.vocabulary_size, options.batch_tokens)
    print(f"{result['pairs']:,} pairs, {result['tokens']:,} tokens")
    print(f"opening a store, checksums compared: {result['seconds_to_open_a_gigabyte']:.2f} s/GB")
    print(f"{'stage':32} {'CPU s':>8} {'tokens/s a core':>16} {'peak GiB':>9}")
    for stage, figures in result.items():
        if isinstance(figures, dict):
            speed = figures.get("tokens_per_core_second")
            print(
                f"{stage:32} {figures['cpu_seconds']:8.1f} "
                f"{'' if speed is None else f'{speed:,.0f}':>16} {figures['peak_bytes'] / 2**30:9.2f}"
            )
    facts, case = run_facts(), {"pairs": options.pairs}
    record = record_path("data_pipeline", case, facts) if options.record else None
    write_figures(facts, "data_pipeline", case, result, (options.json, record))


if __name__ == "__main__":
    main()
