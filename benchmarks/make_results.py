"""Make the tables of `docs/results.md` and of the README from the newest records in `benchmarks/results/`.

python benchmarks/make_results.py            # writes both files
python benchmarks/make_results.py --check    # ends with an error if they are not up to date
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.records import PROCESSORS, RESULTS, processor

FIELDS = ("benchmark", "case", "started", "commit", "command", "source", "cpu", "versions")
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

CHANGED = (
    "{{figures[{0}][bleu]:.2f}} ({{figures[{0}][lines that differ]}} of {{figures[sentences]:,}})"
)
# The columns of tables that have a row for each record: what `filled` puts a record's figures into.
COLUMNS = {
    "recipe": {
        "corpus": "{case[corpus]}",
        "model, parameters": "{case[model]}, {millions:.1f} M",
        "processor": "{processor}",
        "minutes": "{figures[minutes]:.0f}",
        "updates": "{figures[updates]:,}",
        "sacreBLEU": "{figures[bleu]:.1f}",
        "chrF": "{figures[chrf]:.1f}",
    },
    "precisions": {
        "model": "{case[model]}",
        "processor": "{processor}",
        "plain search": "{figures[plain][bleu]:.2f}",
        **{name: CHANGED.format(name) for name in ("float32", "bfloat16", "int8")},
    },
    "peak_memory": {
        "update": "{case[model]}, {dtype}, 2 x {case[tokens]:,} tokens",
        "processor": "{processor}",
        "Marian": "{figures[hf]:.2f}",
        "ours, `recompute`": "{figures[recompute]:.2f}",
        "ours, 4 slices": "{figures[sliced]:.2f}",
    },
    "verification": {"what must hold": "{case[what]}", "what was seen": "{figures[result]}"},
    "data_pipeline": {
        "processor": "{processor}",
        "text to store": "{figures[text to store][tokens_per_core_second]:,.0f}",
        "store to batches": "{figures[store to batches][tokens_per_core_second]:,.0f}",
    },
}

Record = dict[str, Any]


def main() -> int:
    """Write both files, or print which are out of date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    made = made_files(read_records())
    stale = [str(path) for path, text in made.items() if path.read_text("utf-8") != text]
    for path, text in () if options.check else made.items():
        path.write_text(text, encoding="utf-8")
    if stale:
        print(f"{'out of date' if options.check else 'written'}: {', '.join(stale)}")
    return int(options.check and bool(stale))


def made_files(records: Sequence[Record]) -> dict[Path, str]:
    """Return the text of `docs/results.md` and of the README, with new tables after the marks."""
    tables = {"docs/results.md": TABLES, "README.md": (readme_table,)}
    return {
        ROOT / name: replaced((ROOT / name).read_text("utf-8"), [make(records) for make in makers])
        for name, makers in tables.items()
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


# --- records ------------------------------------------------------------------------------------------


def read_records(folder: Path = RESULTS) -> list[Record]:
    """All records, the newest first; each also knows its `"file"`.

    Raises:
        ValueError: A file is no record; the message names it and the fields that it lacks.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        if missing := [name for name in FIELDS if name not in record]:
            raise ValueError(
                f"{path} lacks {', '.join(missing)}: a record has the fields of {folder / 'README.md'}."
            )
        records.append({**record, "file": path.name})
    return sorted(records, key=lambda record: (record["started"], record["file"]), reverse=True)


def subject(record: Record, name: str) -> dict[str, Any] | None:
    """Return the figures of a program, or None if the record has none."""
    found = [part for part in record.get("subjects", ()) if part["spec"]["name"] == name]
    return found[0] if found and found[0]["failure"] is None else None


def times_as_long(record: Record, slow: str, fast: str) -> dict[str, Any] | None:
    """How many times as long as `fast` the program `slow` took; None if they were not compared.

    Returns:
        `median`, `least` and `most`; the last two are None where single rounds were not kept.

    Example:

    >>> times_as_long({"ratios": {"b": {"a": {"median": 0.5, "least": 0.4, "most": None}}}}, "a", "b")
    {'median': 2.0, 'least': None, 'most': 2.5}
    """
    ratios = record.get("ratios", {})
    if fast in ratios.get(slow, {}):
        return dict(ratios[slow][fast])
    if slow in ratios.get(fast, {}):
        turned = ratios[fast][slow]
        inverse = {name: turned[name] and 1 / turned[name] for name in turned}
        return {**inverse, "least": inverse["most"], "most": inverse["least"]}
    one, other = subject(record, slow), subject(record, fast)
    if one is None or other is None or "sentences" not in one["rates"]:
        return None
    median = other["rates"]["sentences"] / one["rates"]["sentences"]
    return {"median": median, "least": None, "most": None}


# --- tables -------------------------------------------------------------------------------------------


def listed(benchmark: str) -> Callable[[Sequence[Record]], str]:
    """Return what makes the table of `COLUMNS` with a row for each of the newest records of a benchmark."""
    columns = {**COLUMNS[benchmark], "record": "{link}"}

    def made(records: Sequence[Record]) -> str:
        found = newest(records, benchmark)
        return table(
            [*columns], [[filled(text, record) for text in columns.values()] for record in found]
        )

    return made


def filled(text: str, record: Record) -> str:
    """Return the text with a record's figures; empty if it lacks one.

    Example:

    >>> record = {"case": {}, "figures": {"minutes": 3.2}, "cpu": {"flags": []}, "started": "", "file": ""}
    >>> filled("{figures[minutes]:.0f} minutes", record), filled("{figures[bleu]}", record)
    ('3 minutes', '')
    """
    more = {
        "processor": processor(record),
        "link": link(record),
        "dtype": record["case"].get("dtype", "").removeprefix("mixed_"),
        "millions": record.get("figures", {}).get("parameters", 0) / 1e6,
    }
    try:
        return text.format(**record, **more)
    except KeyError:
        return ""


def training(records: Sequence[Record]) -> str:
    """Speed of training: a row for each job and processor, a column for each of our backends."""
    rows = []
    named = [r for r in records if r["case"].keys() <= {"workload", "dtype", "pairs", "length"}]
    order = lambda r: (JOBS.index((r["case"]["workload"], r["case"]["dtype"])), -speed(r))  # noqa: E731
    for record in newest(named, "train_update", by=order):
        found = [subject(record, name) for name in OURS_TRAINING]
        marian = [times(record, MARIAN, name) for name in OURS_TRAINING]
        hub = [times(record, keras_hub(name), name) for name in OURS_TRAINING]
        peaks = [(each or {}).get("memory", {}).get("peak_bytes") for each in found]
        memory = [f"{peak / 2**30:.2f}" for peak in peaks if peak is not None]
        cells = [seconds_text(each) for each in found]
        # On TensorFlow and on PyTorch in one cell.
        cells += ["; ".join(filter(None, each)) for each in (marian, hub, memory)]
        what = case_text(record["case"])
        what += f", {record['case']['pairs']} pairs" if "pairs" in record["case"] else ""
        rows.append([what, processor(record), *cells, link(record)])
    heads = ["job", "processor", "TensorFlow", "PyTorch", "Marian", "KerasHub", "peak GiB"]
    return table([*heads, "record"], rows)


def decoding(records: Sequence[Record]) -> str:
    """Sentences a second: a row for each model, processor and day; in a cell, one batch after another."""
    rows = []
    shown = [
        record
        for record in newest(records, "decode", by=decoding_order)
        if subject(record, KERAS_HUB) is None
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
    for names in (*OURS.values(), *([name] for name in CTRANSLATE2.values())):
        found = [part["rates"]["sentences"] for name in names if (part := subject(record, name))]
        cells.append(f"{max(found):.3g}" if found else "")
    for precision, peer in CTRANSLATE2.items():
        ratios = [times_as_long(record, peer, name) for name in OURS[precision]]
        cells.append(number(max((each["median"] for each in ratios if each), default=None)))
    return cells


def start(records: Sequence[Record]) -> str:
    """Seconds and memory from the start of a program."""
    rows = []
    for record in newest(records, "start"):
        for what, programs in record["figures"].items():
            seen = [
                f"{name} {each['seconds']} s"
                + (f", {each['gigabytes']} GB" if "gigabytes" in each else "")
                for name, each in programs.items()
            ]
            what = f"{record['case']['what']}: {what}"
            rows.append([what, processor(record), *seen, link(record)])
    return table(["what", "processor", "ours", "another", "record"], rows)


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
    # Runs against KerasHub have few rounds, so they are used for KerasHub only.
    all_runs = peer(ours[0]) == KERAS_HUB
    usable = [r for r in records if case.items() <= r["case"].items()]
    usable = [r for r in usable if all_runs or subject(r, KERAS_HUB) is None]
    row = dict.fromkeys(RATIO_PROCESSORS, "")
    for record in usable:
        found = [times_as_long(record, peer(program), program) for program in ours]
        if row.get(processor(record)) == "":
            row[processor(record)] = ", ".join(number(each["median"]) for each in found if each)
    return [*row.values()]


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


def case_text(case: dict[str, Any]) -> str:
    """Return a training job in words."""
    kind = "epoch of Multi30K" if case["workload"] == "small" else "update"
    workload = case["workload"].removesuffix("_update")
    return f"{kind}, {workload}, {case['dtype'].removeprefix('mixed_')}"


def keras_hub(name: str) -> str:
    """Return the name of KerasHub on the backend of one of ours."""
    return name.replace("keras_attention", "KerasHub")


def number(value: float | None) -> str:
    """Return a ratio: 25, 2.28, 0.91."""
    return "" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2f}"


def times(record: Record, slow: str, fast: str) -> str:
    """Return the ratio of two programs, with its range where it is known."""
    found = times_as_long(record, slow, fast)
    if found is None:
        return ""
    reach = f" ({found['least']:.2f}-{found['most']:.2f})" if found["least"] else ""
    return f"{number(found['median'])}{reach}"


def seconds_text(found: Record | None) -> str:
    """Median and range of a sample."""
    if found is None or not found["seconds"]:
        return ""
    return "{median:.3g} ({least:.3g}-{most:.3g})".format(**found["seconds"])


def link(record: Record) -> str:
    """Return the day of the run, linked to its record."""
    return f"[{record['started'][:10]}](../benchmarks/results/{record['file']})"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: tuple[Callable[[Sequence[Record]], str], ...] = (
    listed("recipe"),
    training,
    decoding,
    listed("precisions"),
    listed("peak_memory"),
    listed("verification"),
    listed("data_pipeline"),
    start,
    lambda records: ratio_table(ratios(records)),
)


if __name__ == "__main__":
    sys.exit(main())
