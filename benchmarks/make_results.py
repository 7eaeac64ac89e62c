"""Make the tables of `docs/results.md` and of the README from the newest records in `benchmarks/results/`.

python benchmarks/make_results.py            # writes both files
python benchmarks/make_results.py --check    # ends with an error if they are not up to date
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from records import PROCESSORS, processor, read_records, subject, times_as_long

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- made by benchmarks/make_results.py -->"
OURS_TRAINING = ("keras_attention, TensorFlow", "keras_attention, PyTorch")
MARIAN = "HF Marian"
# Training jobs (workload and precision), in the order of the tables.
JOBS = [
    (workload, dtype)
    for workload in ("base", "small", "small_update", "tiny", "paper")
    for dtype in ("mixed_bfloat16", "float32")
]
# Our programs in the decoding benchmark, by precision.
OURS = {
    precision: [f"keras_attention {backend} {precision}" for backend in ("tensorflow", "torch")]
    + [f"keras_attention torch {precision} numba"]
    for precision in ("float32", "bfloat16", "int8")
}
CTRANSLATE2 = {precision: f"CTranslate2 {precision}" for precision in ("float32", "int8")}
KERAS_HUB = "KerasHub BART float32"
MODELS = ("tiny", "small", "small_6_6", "small_6_2", "medium", "base")
# The programs of the memory benchmark -> their column in the table.
PROGRAMS = {"hf": "Marian", "recompute": "ours, `recompute`", "sliced": "ours, 4 slices"}
RATIO_PROCESSORS = ("AMX", "AVX512-BF16", "AVX2 (emulated)", "AVX2")
# The rows of the comparison that the README shows: large and small models.
README_ROWS = (
    ("training: update, base, bfloat16", MARIAN),
    ("training: update, tiny, float32", MARIAN),
    ("translating: base, batches of 32", CTRANSLATE2["float32"]),
    ("translating: base, batches of 32", CTRANSLATE2["int8"]),
    ("translating: small, batches of 1", CTRANSLATE2["float32"]),
    ("translating: tiny, batches of 8", CTRANSLATE2["float32"]),
)

Record = dict[str, Any]


def main() -> int:
    """Write both files, or print which are out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    stale = []
    for path, text in made_files(read_records()).items():
        if path.read_text("utf-8") == text:
            continue
        stale.append(str(path))
        if not options.check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"{'out of date' if options.check else 'written'}: {', '.join(stale)}")
    return int(options.check and bool(stale))


def made_files(records: Sequence[Record]) -> dict[Path, str]:
    """Return the text of `docs/results.md` and of the README, with new tables after the marks."""
    results, readme = ROOT / "docs" / "results.md", ROOT / "README.md"
    return {
        path: replaced(path.read_text("utf-8"), tables)
        for path, tables in (
            (results, [make(records) for make in TABLES]),
            (readme, [readme_table(records)]),
        )
    }


def replaced(text: str, tables: Sequence[str]) -> str:
    """Return the text with a new table after each mark, in order; a table ends with an empty line.

    Example:

    >>> replaced(f"{MARK}\\n| old |\\n\\nmore", ["| new |"]) == f"{MARK}\\n| new |\\n\\nmore"
    True
    """
    first, *parts = text.split(f"{MARK}\n")
    if len(parts) != len(tables):
        raise ValueError(
            f"The text must have {len(tables)} lines {MARK!r}, one for each table. Received: {len(parts)}"
        )
    rest = [part.partition("\n\n")[2] for part in parts]
    return first + "".join(
        f"{MARK}\n{table}\n\n{more}" for table, more in zip(tables, rest, strict=True)
    )


# --- tables -------------------------------------------------------------------------------------------


def translations(records: Sequence[Record]) -> str:
    """Quality: a row for each corpus, model and processor."""
    rows = [
        [
            record["case"]["corpus"],
            f"{record['case']['model']}, {record['figures']['parameters'] / 1e6:.1f} M",
            processor(record),
            f"{record['figures']['minutes']:.0f}",
            f"{record['figures']['updates']:,}",
            f"{record['figures']['bleu']:.1f}",
            f"{record['figures']['chrf']:.1f}",
            link(record),
        ]
        for record in newest(records, "recipe")
    ]
    heads = ["corpus", "model, parameters", "processor", "minutes", "updates"]
    return table([*heads, "sacreBLEU", "chrF", "record"], rows)


def training(records: Sequence[Record]) -> str:
    """Speed of training: a row for each job and processor, a column for each of our backends."""
    rows = []
    named = [r for r in records if r["case"].keys() <= {"workload", "dtype", "pairs", "length"}]
    for record in newest(named, "train_update", by=lambda r: (JOBS.index(job(r)), -speed(r))):
        found = [subject(record, name) for name in OURS_TRAINING]
        marian = [times(record, MARIAN, name) for name in OURS_TRAINING]
        hub = [times(record, keras_hub(name), name) for name in OURS_TRAINING]
        memory = [memory_text(part) for part in found]
        cells = [*map(seconds_text, found), *map(joined, (marian, hub, memory))]
        rows.append([training_text(record), processor(record), *cells, link(record)])
    heads = ["job", "processor", "TensorFlow", "PyTorch", "Marian", "KerasHub", "peak GiB"]
    return table([*heads, "record"], rows)


def decoding(records: Sequence[Record]) -> str:
    """Sentences a second: a row for each model, processor and day; in a cell, one batch after another."""
    rows = []
    shown = [
        record
        for record in newest(records, "decode", by=decoding_order)
        if subject(record, KERAS_HUB) is None and "busy" not in record["case"]
    ]
    for where, group in itertools.groupby(shown, key=decoding_row):
        found = [decoding_cells(record) for record in group]
        cells = [" / ".join(cell or "-" for cell in column) for column in zip(*found, strict=True)]
        rows.append([*where, *(cell if cell.strip("- /") else "" for cell in cells)])
    heads = ["model", "processor", "date", "batch", "float32", "bfloat16", "int8"]
    return table([*heads, "CT2 float32", "CT2 int8", "float32 / CT2", "int8 / CT2"], rows)


def decoding_row(record: Record) -> tuple[str, str, str]:
    """Which row a run belongs to: model, processor and day."""
    model = f"{record['case']['model']}, V {record['case']['vocabulary_size']:,}"
    return model, processor(record), record["started"][:10]


def decoding_cells(record: Record) -> list[str]:
    """Return the batch size, linked to its record, and what was measured with it."""
    cells = [f"[{record['case']['batch_size']}](../benchmarks/results/{record['file']})"]
    cells += [rate_text(record, names) for names in OURS.values()]
    cells += [rate_text(record, [name]) for name in CTRANSLATE2.values()]
    for precision in CTRANSLATE2:
        cells.append(best_ratio(record, CTRANSLATE2[precision], OURS[precision]))
    return cells


def precisions(records: Sequence[Record]) -> str:
    """BLEU, and the number of lines that differ, by precision."""
    rows = []
    for record in newest(records, "precisions"):
        row = [record["case"]["model"], processor(record)]
        row.append(f"{record['figures']['plain']['bleu']:.2f}")
        for name in ("float32", "bfloat16", "int8"):
            found = record["figures"][name]
            row.append(
                f"{found['bleu']:.2f} ({found['lines that differ']} of {record['figures']['sentences']:,})"
            )
        rows.append([*row, link(record)])
    return table(
        ["model", "processor", "plain search", "float32", "bfloat16", "int8", "record"], rows
    )


def memory(records: Sequence[Record]) -> str:
    """Peak memory of an update."""
    rows = []
    for record in newest(records, "peak_memory"):
        case, found = record["case"], record["figures"]
        cells = [f"{found[name]:.2f}" if name in found else "" for name in PROGRAMS]
        dtype = case["dtype"].removeprefix("mixed_")
        update = f"{case['model']}, {dtype}, 2 x {case['tokens']:,} tokens"
        rows.append([update, processor(record), *cells, link(record)])
    return table(["update", "processor", *PROGRAMS.values(), "record"], rows)


def verifications(records: Sequence[Record]) -> str:
    """Return the checks of equality, and their results."""
    rows = [
        [record["case"]["what"], record["figures"]["result"], link(record)]
        for record in newest(records, "verification")
    ]
    return table(["what must hold", "what was seen", "record"], rows)


def pipeline(records: Sequence[Record]) -> str:
    """Tokens a second from text to batches."""
    stages = ("text to store", "store to batches")
    rows = [
        [
            processor(record),
            *(f"{record['figures'][stage]['tokens_per_core_second']:,.0f}" for stage in stages),
            link(record),
        ]
        for record in newest(records, "data_pipeline")
    ]
    return table(["processor", *stages, "record"], rows)


def start(records: Sequence[Record]) -> str:
    """Seconds and memory from the start of a program."""
    rows = []
    for record in newest(records, "start"):
        for what, programs in record["figures"].items():
            seen = [f"{name} {start_text(figures)}" for name, figures in programs.items()]
            what = f"{record['case']['what']}: {what}"
            rows.append([what, processor(record), *seen, link(record)])
    return table(["what", "processor", "ours", "another", "record"], rows)


def start_text(figures: dict[str, float]) -> str:
    """Seconds, and gigabytes where they are known."""
    memory = f", {figures['gigabytes']} GB" if "gigabytes" in figures else ""
    return f"{figures['seconds']} s{memory}"


TABLES: tuple[Callable[[Sequence[Record]], str], ...] = (
    translations,
    training,
    decoding,
    precisions,
    memory,
    verifications,
    pipeline,
    start,
    lambda records: ratio_table(ratios(records)),
)


def readme_table(records: Sequence[Record]) -> str:
    """Return the rows of `ratios` that stand for the others."""
    rows = {(job, peer): cells for job, peer, *cells in ratios(records)}
    return ratio_table([[*row, *rows[row]] for row in README_ROWS])


def ratio_table(rows: Iterable[Sequence[str]]) -> str:
    """Rows of `ratios` as a table."""
    return table(["job", "against", *RATIO_PROCESSORS], rows)


def ratios(records: Sequence[Record]) -> list[list[str]]:
    """Return the other programs' time divided by ours, a row for each job and peer, a column a processor."""
    rows = []
    for workload, dtype in JOBS:
        case = {"workload": workload, "dtype": dtype}
        for title, peer in ((MARIAN, lambda name: MARIAN), ("KerasHub, same backend", keras_hub)):
            found = ratio_cells(records, case, peer, OURS_TRAINING)
            rows.append([f"training: {case_text(case)}", title, *found])
    peers = [(name, OURS[precision]) for precision, name in CTRANSLATE2.items()]
    for model in reversed(MODELS):
        for batch in (1, 8, 32, 64):
            case = {"model": model, "batch_size": batch}
            for peer, ours in (*peers, (KERAS_HUB, OURS["float32"])):
                found = ratio_cells(records, case, lambda name, peer=peer: peer, ours)
                rows.append([f"translating: {model}, batches of {batch}", peer, *found])
    return [row for row in rows if any(row[2:])]


def ratio_cells(
    records: Sequence[Record],
    case: dict[str, Any],
    peer: Callable[[str], str],
    ours: Sequence[str],
) -> list[str]:
    """For each processor, the peer's time divided by that of each of ours, in the newest run of both."""
    row = []
    for name in RATIO_PROCESSORS:
        texts: list[str] = []
        for record in records:
            # Runs against KerasHub have few rounds, so they are used for KerasHub only.
            usable = peer(ours[0]) == KERAS_HUB or subject(record, KERAS_HUB) is None
            usable = usable and "busy" not in record["case"]
            if usable and not texts and processor(record) == name and is_of(record, case):
                found = [times_as_long(record, peer(program), program) for program in ours]
                texts = [number(ratio["median"]) for ratio in found if ratio]
        row.append(", ".join(texts))
    return row


def newest(
    records: Sequence[Record], benchmark: str, by: Callable[[Record], Any] | None = None
) -> list[Record]:
    """Return the newest record of each case and processor of a benchmark, in the order of `by`.

    A decoding run against KerasHub counts as a separate case, since KerasHub is too slow for every run.
    """
    found: dict[str, Record] = {}
    for record in records:
        if record["benchmark"] == benchmark:
            hub = subject(record, KERAS_HUB) is not None
            key = repr((sorted(record["case"].items()), processor(record), hub))
            found.setdefault(key, record)
    return sorted(found.values(), key=by or (lambda record: (repr(record["case"]), -speed(record))))


def speed(record: Record) -> int:
    """Rank of a processor: the highest for the best instruction set, GPUs above all."""
    names = [*reversed(PROCESSORS.values())]
    name = processor(record).removesuffix(" (emulated)")
    return names.index(name) if name in names else len(names)


def decoding_order(record: Record) -> Any:
    """Sorts by model, processor, day and batch."""
    case = record["case"]
    model = MODELS.index(case["model"]) if case["model"] in MODELS else len(MODELS)
    return model, -speed(record), *decoding_row(record), case["batch_size"]


def is_of(record: Record, case: dict[str, Any]) -> bool:
    """Whether a record's case contains these values."""
    return case.items() <= record["case"].items()


def job(record: Record) -> tuple[str, str]:
    """Workload and precision of a training."""
    return record["case"]["workload"], record["case"]["dtype"]


def training_text(record: Record) -> str:
    """Return the training job, with the number of pairs per update."""
    case = record["case"]
    return case_text(case) + (f", {case['pairs']} pairs" if "pairs" in case else "")


def case_text(case: dict[str, Any]) -> str:
    """Return a training job in words."""
    kind = "epoch of Multi30K" if case["workload"] == "small" else "update"
    workload = case["workload"].removesuffix("_update")
    return f"{kind}, {workload}, {case['dtype'].removeprefix('mixed_')}"


def keras_hub(name: str) -> str:
    """Return the name of KerasHub on the backend of one of ours."""
    return name.replace("keras_attention", "KerasHub")


def number(value: float) -> str:
    """Return a ratio: 25, 2.28, 0.91."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2f}"


def times(record: Record, slow: str, fast: str) -> str:
    """Return the ratio of two programs, with its range where it is known."""
    found = times_as_long(record, slow, fast)
    if found is None:
        return ""
    reach = f" ({found['least']:.2f}-{found['most']:.2f})" if found["least"] else ""
    return f"{number(found['median'])}{reach}"


def best_ratio(record: Record, slow: str, ours: Iterable[str]) -> str:
    """Return the largest ratio of a peer's time to one of ours."""
    found = [ratio["median"] for name in ours if (ratio := times_as_long(record, slow, name))]
    return number(max(found)) if found else ""


def rate_text(record: Record, names: Sequence[str]) -> str:
    """Sentences a second of the fastest of these programs."""
    found = [part["rates"]["sentences"] for name in names if (part := subject(record, name))]
    return f"{max(found):.3g}" if found else ""


def joined(texts: Sequence[str]) -> str:
    """Figures on TensorFlow and on PyTorch in one cell."""
    return "; ".join(text for text in texts if text)


def seconds_text(found: Record | None) -> str:
    """Median and range of a sample."""
    if found is None or not found["seconds"]:
        return ""
    seconds = found["seconds"]
    median, least, most = (f"{seconds[name]:.3g}" for name in ("median", "least", "most"))
    return f"{median} ({least}-{most})"


def memory_text(found: Record | None) -> str:
    """Peak in GiB."""
    peak = (found or {}).get("memory", {}).get("peak_bytes")
    return "" if peak is None else f"{peak / 2**30:.2f}"


def link(record: Record) -> str:
    """Return the day of the run, linked to its record."""
    return f"[{record['started'][:10]}](../benchmarks/results/{record['file']})"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
