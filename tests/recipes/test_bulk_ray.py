"""Bulk work on Ray: workers, nodes and the driver die, what was done is not done again, memory stays flat.

The long form, of minutes: KERAS_ATTENTION_LONG=1 python -m pytest -s tests/recipes/test_bulk_ray.py
"""

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_attention.cli.main import main
from keras_attention.recipes import bulk_work
from keras_attention.recipes.bulk_work import BulkWork, TextFile
from tests.helpers import ROOT, contents
from tests.recipes.bulk_jobs import Shout
from tests.recipes.small_runs import untrained_run

pytestmark = pytest.mark.backends("torch")

long = pytest.mark.skipif(
    not os.environ.get("KERAS_ATTENTION_LONG"), reason="minutes: set KERAS_ATTENTION_LONG=1"
)


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="the extra [ray]")
    from ray.cluster_utils import Cluster

    old = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "PYTHONPATH")}
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def nodes(cluster):
    """Brings the cluster to so many nodes with a worker each; those of the test before serve again."""

    def have(count):
        for node in [*cluster.worker_nodes][count:]:
            cluster.remove_node(node)
        while len(cluster.worker_nodes) < count:
            cluster.add_node(num_cpus=1)
        return [*cluster.worker_nodes]

    return have


def write_inputs(folder, lines):
    """Several files: one without a last newline, one gzip, one empty; U+2028 inside lines."""
    lines = [
        f"{i} {line}\u2028 and more" if i % 5 == 0 else f"{i} {line}"
        for i, line in enumerate(lines)
    ]
    first, second = len(lines) * 4 // 9, len(lines) * 7 // 9
    parts = {
        "a.txt": lines[:first],
        "b.txt.gz": lines[first:second],
        "empty.txt": [],
        "c.txt": lines[second:],
    }
    for name, part in parts.items():
        text = ("\n".join(part) + "\n" * (name == "c.txt")).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return [folder / name for name in parts], list(parts.values())


@pytest.fixture
def start():
    """Starts bulk_jobs.py in a process of its own, which does not outlive the test."""
    started = []

    def start(**job):
        program = [sys.executable, "-m", "tests.recipes.bulk_jobs", json.dumps(job, default=str)]
        started.append(subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_chunks(driver, count):
    for line in driver.stdout:  # Ray's own lines are among them.
        count -= line == "written\n"
        if count == 0:
            return
    raise AssertionError("The driver ended early.")


def test_a_node_that_dies_and_then_the_driver_cost_their_chunks_alone(
    cluster, nodes, start, tmp_path
):
    inputs, parts = write_inputs(tmp_path, [f"line {i}" for i in range(47)])
    out, shout = tmp_path / "out", Shout(tmp_path / "seen.log")
    job = {"address": cluster.address, "chunk_lines": 2, "seconds": 0.15}
    job |= {"inputs": inputs, "out": out, "log": shout.log}
    first, _ = nodes(2)
    driver = start(**job)
    wait_for_chunks(driver, 4)
    cluster.remove_node(first, allow_graceful=False)
    wait_for_chunks(driver, 5)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    written = {parts[int(part.parent.name)][int(part.name)] for part in out.glob("parts/*/[0-9]*")}
    before = shout.seen()
    driver = start(**job)
    shown, _ = driver.communicate(timeout=560)
    assert driver.returncode == 0
    seen = shout.seen()
    heads = [part[i] for part in parts for i in range(0, len(part), 2)]
    assert set(seen) == {line for part in parts for line in part}
    # What was kept is not done again: the second start does the rest, and each chunk of it once.
    assert len(written) >= 9 and not written & set(seen[len(before) :])
    assert shown.count("written") == len(heads) - len(written)
    # Lost: what the dead node's worker had, then what those of the dead driver had, or were given next.
    assert len(heads) <= sum(line in {*heads} for line in seen) <= len(heads) + 1 + 2 * 2
    assert texts(out) == in_capitals(inputs, parts)


def in_capitals(inputs, parts):
    return {
        path.name.removesuffix(".gz"): "".join(
            f"{i} {s.upper()}\n" for i, s in enumerate(part)
        ).encode()
        for path, part in zip(inputs, parts, strict=True)
    }


def test_a_killed_worker_costs_its_chunk_alone(cluster, nodes, tmp_path):
    """With two workers where one has room: the other starts when the first has nothing more to do."""
    nodes(1)
    inputs, parts = write_inputs(tmp_path, [f"line {i}" for i in range(9)])
    job = Shout(tmp_path / "seen.log", die_at="2 line 2", deaths=1)
    work = BulkWork(tmp_path / "out", [TextFile(file) for file in inputs], {"model": "m"}, 1)
    work.run(job, cluster.address, 2, show_progress=False)
    assert texts(tmp_path / "out") == in_capitals(inputs, parts)
    assert sorted(job.seen()) == sorted([*sum(parts, []), "2 line 2"])


def test_what_a_worker_raises_or_dies_of_ends_the_work(cluster, nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_work, "MAX_TASK_RETRIES", 1)  # A worker that starts costs seconds.
    nodes(1)
    inputs, _ = write_inputs(tmp_path, ["one", "two", "three"])
    for place, message in (("fail_at", "out of order"), ("die_at", "dies each time")):
        job = Shout(tmp_path / f"{place}.log", **{place: "1 two"})
        files = [TextFile(file) for file in inputs]
        work = BulkWork(tmp_path / place, files, {"model": "m"}, 1)
        with pytest.raises(RuntimeError, match=message):
            work.run(job, cluster.address, show_progress=False)
    assert 1 <= job.seen().count("1 two") <= 2


def commands_of_the_page(pattern):
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    found = [line for line in text.splitlines() if re.match(f"keras-attention {pattern}", line)]
    return [shlex.split(line)[1:] for line in found]


def into(folder, words):
    """The same command with another output folder."""
    at = words.index("--output-dir") + 1
    return [*words[:at], folder, *words[at + 1 :]]


def texts(folder):
    return {n: text for n, text in contents(folder).items() if not n.endswith("manifest.json")}


@pytest.fixture
def page(cluster, nodes, tmp_path, monkeypatch):
    """What the commands of docs/scale.md find: a run, a corpus, a cluster."""
    nodes(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    run = Path("runs/de-en")
    run.mkdir(parents=True)
    untrained_run(run)
    lines = ["The dog sleeps.", "", "A woman\u2028sees it.", "It is a small house."]
    for name, count in {"corpus/b": 3, "corpus/a": 0, "crawl/x.de": 4, "crawl/x.en": 4}.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.gz").write_bytes(gzip.compress("\n".join(lines[:count]).encode()))


def test_the_commands_that_translate_give_the_same(page, capsys):
    alone, on_ray = commands_of_the_page("translate")
    main(into("first", alone))
    capsys.readouterr()
    main(into("second", on_ray))
    assert capsys.readouterr().out.split() == ["second/a", "second/b"]
    first = texts("first")
    assert {name: content.count(b"\n") for name, content in first.items()} == {"a": 0, "b": 3}
    assert texts("second") == first


def test_the_command_that_scores(page, capsys):
    (on_ray,) = commands_of_the_page("score")
    main(on_ray)
    assert capsys.readouterr().out.split() == ["scores/x.en"]
    pairs = [f"crawl/x.{language}.gz" for language in ("de", "en")]
    main(["score", "runs/de-en", "--source-file", pairs[0], "--target-file", pairs[1]])
    # A worker has one thread, so it sums in another order.
    alone = [float(line) for line in capsys.readouterr().out.split()]
    on_ray_scores = [float(line) for line in Path("scores/x.en").read_text().split()]
    assert on_ray_scores == pytest.approx(alone, rel=1e-5) and len(alone) == 4


@long
def test_the_memory_of_the_driver_does_not_grow_with_the_corpus(cluster, nodes, start, tmp_path):
    nodes(1)
    peaks = {}
    for count in (20_000, 2_000_000):
        file = tmp_path / f"{count}.txt"
        with open(file, "w") as text:
            text.writelines(
                f"{i} and a sentence of some length about it, {i % 7}\n" for i in range(count)
            )
        job = {"address": cluster.address, "inputs": [str(file)], "chunk_lines": 2000}
        driver = start(out=tmp_path / f"out{count}", **job)
        shown, _ = driver.communicate(timeout=560)
        assert driver.returncode == 0 and shown.count("written") == count // 2000
        assert (tmp_path / f"out{count}" / file.name).read_bytes() == file.read_bytes()
        peaks[count] = float(re.search(r"^peak (.*)$", shown, re.MULTILINE)[1])
    print(f"peak memory of the driver, MB: {peaks}")
    assert peaks[2_000_000] - peaks[20_000] < 100
