import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import (
    Outcome,
    Spec,
    SubjectFailed,
    Worker,
    compare,
    comparison,
    installed,
    ratio,
    summarize,
    table,
    write_record,
)
from harness.compare import differing_output

pytestmark = pytest.mark.backends("tensorflow")

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def importable_dummies(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def dummy(name, **options):
    return Spec(name, "dummies:Dummy", {"name": name, **options})


def test_a_worker_has_its_own_environment_and_cpus():
    with Worker("dummies:Dummy", {}, {"A_VARIABLE": "7"}, threads=1, time_limit=60) as worker:
        answer = worker.call("echo", 60, text="Übung")
    assert answer["text"] == "Übung" and answer["variable"] == "7"
    assert answer["cpus"] in (1, None)


def test_subjects_take_turns_and_the_bad_ones_leave_the_others_alone(tmp_path):
    order = tmp_path / "order"
    specs = [
        dummy("a", path=str(order), seconds=0.5),
        dummy("raises", bad="raises"),
        dummy("dies", bad="dies"),
        dummy("b", path=str(order), seconds=2.0, loss=2.0001),
        dummy("other", loss=2.1),
        dummy("late", bad="dies later"),
    ]
    outcomes = {o.spec.name: o for o in compare(specs, rounds=2, count=3)}
    assert order.read_text() == "ab" * 3
    assert outcomes["a"].rounds == [[0.5] * 3] * 2
    assert outcomes["b"].rate("tokens") == 50.0 and outcomes["b"].rate("flop") is None
    assert "ValueError: no model here" in outcomes["raises"].failure
    assert "code 7" in outcomes["dies"].failure and "out of luck" in outcomes["dies"].failure
    assert "2.1" in outcomes["other"].failure and not outcomes["other"].rounds
    assert "code 3" in outcomes["late"].failure
    assert outcomes["a"].failure is None and outcomes["b"].failure is None


def test_a_subject_that_hangs_is_ended_with_its_children():
    with Worker(
        "dummies:Dummy", {"bad": "hangs", "name": f"mark-{os.getpid()}"}, time_limit=60
    ) as worker:
        with pytest.raises(SubjectFailed, match="more than 1 s"):
            worker.call("prepare", 1.0)
    assert not left_running(f"mark-{os.getpid()}")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_parent_is_stopped(sent, tmp_path):
    mark = f"stopped-{os.getpid()}-{sent}"
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from harness import Worker\n"
        "with Worker('dummies:Dummy', {'bad': 'hangs', 'name': sys.argv[2]}) as worker:\n"
        "    print(worker._process.pid, flush=True)\n"
        "    worker.call('prepare', 100)\n"
    )
    benchmarks = str(HERE.parents[1] / "benchmarks")
    with subprocess.Popen(
        [sys.executable, str(script), benchmarks, mark],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        child = int(parent.stdout.readline())
        parent.send_signal(sent)
        parent.wait(timeout=30)
    ends = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
    if sent == signal.SIGINT:
        assert not left_running(mark)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="Linux tells peaks of stretches"
)
def test_peak_memory_is_that_of_the_timed_part():
    with Worker("dummies:Dummy", {"bad": "grows"}, time_limit=60) as worker:
        worker.call("prepare", 60)
        memory = worker.call("run", 60, count=1)["memory"]
    assert memory["peak_bytes"] - memory["resident_bytes"] > 250 << 20


def test_medians_and_ratios():
    assert summarize([[5.0, 1.0], [2.0]]).median == 2.0
    # Medians 4 and 2 over all; of the rounds 3/1 and 5/4.
    spread = ratio([[3.0, 3.0], [5.0, 5.0]], of=[[1.0], [4.0]][:2])
    assert (spread.median, spread.least, spread.most) == (4.0 / 2.5, 1.25, 3.0)
    with pytest.raises(ValueError, match="shorter|longer"):
        ratio([[1.0]], of=[[1.0], [2.0]])


def test_outputs_that_are_not_numbers_differ():
    assert differing_output({"loss": 1.0, "only here": 3}, {"loss": 1.0005}) is None
    assert "nan" in differing_output({"loss": 1.0}, {"loss": float("nan")})


def test_what_is_not_installed_is_named_with_its_package(capsys):
    absent = Spec("peer", "x:Y", requires={"json": "json", "no_such_module_1": "its-package"})
    assert [spec.name for spec in installed([dummy("a"), absent])] == ["a"]
    assert capsys.readouterr().err == "not installed: peer; pip install its-package\n"


def outcomes_of_three():
    one = Outcome(
        dummy("keras_attention"), {"work": {"tokens": 60.0}}, rounds=[[2.0, 2.0], [4.0, 3.0]]
    )
    two = Outcome(dummy("peer"), {"work": {"tokens": 60.0}}, rounds=[[6.0, 6.0], [7.0, 7.0]])
    for outcome, size in ((one, 1), (two, 3)):
        outcome.memory["peak_bytes"] = size << 30
    return [one, two, Outcome(dummy("third"), {"loss": float("nan")}, failure="it died")]


def test_the_table_says_rates_and_ratios():
    text = table(outcomes_of_three(), {"tokens": ("tokens/s", 1)}, ratio_to=["keras_attention"])
    assert "| keras_attention | 2,500 | 2,000-4,000 | 24 | 1.00 | 1.00 (1.00-1.00) |" in text
    assert "| peer | 6,500 | 6,000-7,000 | 9.23 | 3.00 | 2.60 (2.00-3.00) |" in text
    assert "failed: third: it died" in text


def test_a_record_holds_every_figure_but_texts(tmp_path):
    facts = {"started": "2026-01-02T03:04:05+00:00", "cpu": {"flags": ["avx2"]}}
    outcomes = outcomes_of_three()
    outcomes[0].outputs = {"loss": 2.5, "translations": ["somebody's text"]}
    write_record(tmp_path / "new", facts, "b", {"a": 1}, **comparison(outcomes), data={"pairs": 3})
    (path,) = (tmp_path / "new").iterdir()
    assert path.name == "2026-01-02T030405-b-1-avx2.json"
    record = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert record["ratios"]["peer"]["keras_attention"] == {"median": 2.6, "least": 2.0, "most": 3.0}
    assert record["subjects"][0]["outputs"] == {"loss": 2.5} and record["data"] == {"pairs": 3}
    assert record["subjects"][1]["rounds"] == [[6.0, 6.0], [7.0, 7.0]]
    assert record["subjects"][2]["failure"] == "it died"
    write_record(None, facts, "b", {"a": 1})


def left_running(mark):
    """Whether a process with this mark stays; one that was killed may need a moment to go."""
    ends = time.monotonic() + 20
    while is_running(mark):
        if time.monotonic() > ends:
            return True
        time.sleep(0.05)
    return False


def is_running(mark):
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in process.read_text() and int(process.parent.name) != os.getpid():
                return True
        except OSError:
            continue
    return False
