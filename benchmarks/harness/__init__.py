"""Compares programs fairly: each in its own process, kept warm, one at a time, in turns.

How to use it (see `benchmarks/train_update.py`; `gemm.py` holds a complete subject):

1. Write a `Subject` for each program, in a module beside the benchmark. It runs in the child, where what it
   prints goes to a log.
2. Describe each by a `Spec`: a name, `"module:Class"` as importable from `benchmarks/`, the keyword
   arguments of the constructor (JSON), environment variables, the packages that it needs.
3. `outcomes = compare(installed(specs), rounds=5, count=2)`: starts, prepares, checks the outputs against
   the first subject's, warms up, then A B C, A B C, ... A subject that raises, dies, hangs or computes
   something else gets `outcome.failure`, and the others continue. Nothing is left running, even after Ctrl-C.
4. Print `table(...)`, and write `write_record(...)` if `add_record_option` was chosen.
"""

from harness.compare import (
    Outcome,
    Spec,
    best_ceiling,
    compare,
    comparison,
    installed,
    ratio,
    summarize,
    table,
)
from harness.process import SubjectFailed, Worker
from harness.records import add_record_option, run_facts, write_record
from harness.subject import Subject

__all__ = [
    "Outcome",
    "Spec",
    "Subject",
    "SubjectFailed",
    "Worker",
    "add_record_option",
    "best_ceiling",
    "compare",
    "comparison",
    "installed",
    "ratio",
    "run_facts",
    "summarize",
    "table",
    "write_record",
]
