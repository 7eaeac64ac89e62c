"""Compares programs fairly: each in its own process, kept warm, one at a time, in turns.

How to use it (see `benchmarks/train_update.py`; `gemm.py` holds a complete subject):

1. Write a `Subject` for each program, in a module beside the benchmark. Its constructor imports the
   libraries, `prepare` builds the model and returns facts (with `"work"`: the work in one sample,
   such as `{"tokens": 4096, "flop": 7.8e11}`), `check` returns outputs to compare, `run(count)` returns
   the seconds of each of `count` samples. It runs in the child: what it prints goes to a log.
2. Describe each by a `Spec`: a name, `"module:Class"` as importable from `benchmarks/`, the keyword
   arguments of the constructor (JSON), environment variables, the packages that it needs.
3. `present, missing = split_by_presence(specs)`; name the missing ones with `missing_text(missing)`.
4. `outcomes = compare(present, rounds=5, count=2, ...)`: starts, prepares, checks the outputs against
   the first subject's, warms up, then A B C, A B C, ... A subject that raises, dies, hangs or computes
   something else gets `outcome.failure`, and the others continue. Nothing is left running, even after Ctrl-C.
5. `table(...)`, `write_json(path, run_facts(), outcomes, ...)`, `plot_ratios(path, ...)`.

A script in `benchmarks/` imports this as `from harness import ...`.
"""

from harness.compare import Outcome, Spec, compare, missing_text, split_by_presence
from harness.machine import run_facts
from harness.process import SubjectFailed, Worker
from harness.report import best_ceiling, plot_ratios, table, write_json
from harness.subject import Subject
from harness.summary import ratio, summarize

__all__ = [
    "Outcome",
    "Spec",
    "Subject",
    "SubjectFailed",
    "Worker",
    "best_ceiling",
    "compare",
    "missing_text",
    "plot_ratios",
    "ratio",
    "run_facts",
    "split_by_presence",
    "summarize",
    "table",
    "write_json",
]
