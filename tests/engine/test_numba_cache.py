"""What compiled code leaves on the disk for later processes."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

import numba

from keras_attention.engine import select
from keras_attention.engine.numba.compiling import compiled, is_on_disk
from keras_attention.engine.select import EngineSelector
from tests.engine.random_spec import covering_set, random_spec

pytestmark = pytest.mark.backends("tensorflow")


def double(number):
    return number + number


def test_two_processes_that_compile_at_once_keep_both_results(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def in_a_new_process(number):
        compiled.cache_clear()
        return compiled(double, (numba.typeof(number),))

    signature = (numba.typeof(np.float64(1.25)),)
    assert not is_on_disk(double, signature)
    first = in_a_new_process(np.float64(1.25))
    assert is_on_disk(double, signature) and not is_on_disk(double, (numba.typeof(np.int64(3)),))
    assert first(np.float64(1.25)) == 2.5
    (index,) = tmp_path.rglob("*.nbi")
    shutil.move(index, tmp_path / "index")
    # Another process, that began before the first one was done: it saw nothing of it.
    assert in_a_new_process(np.int64(3))(np.int64(3)) == 6
    shutil.move(tmp_path / "index", index)
    third = in_a_new_process(np.float64(1.25))
    assert third(np.float64(1.25)) == 2.5
    assert list(third.stats.cache_hits.values()) == [1]


def test_a_folder_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    compiled.cache_clear()
    assert compiled(double, (numba.float64,))(2.5) == 5.0
    assert not is_on_disk(double, (numba.float64,))


def test_another_process_compiles_what_much_text_will_need(monkeypatch):
    monkeypatch.setattr(select, "_compilers", [])
    # Beside other tests the lowest priority takes four times as long.
    monkeypatch.setattr(select, "COMPILER", select.COMPILER.replace("(19)", "(0)"))
    selector = EngineSelector(random_spec(), "float32")
    selector.compile_beside(1)
    assert not select._compilers, "NumPy translates so little"
    for _ in range(2):
        selector.compile_beside(1e9)
    (child,) = select._compilers
    engine = selector.engine()
    assert child.returncode == 0
    # It is the program of every model.
    others = [EngineSelector(random_spec(one), "float32").engine() for one in covering_set()]
    assert all(one.is_compiled() for one in [engine, *others])


@pytest.mark.parametrize("eight_bits", [False, True])
def test_a_pretrained_model_of_eight_bits_has_its_own_program_compiled(monkeypatch, eight_bits):
    """Its weights are scored before the training, and are others after it."""
    spec, commands = random_spec(), []
    if eight_bits:
        table = spec.output_embedding.embeddings
        scales = np.abs(table).max(axis=1, keepdims=True) / np.float32(127)
        table[:] = np.rint(table / scales) * scales
    monkeypatch.setattr(select, "_compilers", [])
    monkeypatch.setattr(select.subprocess, "Popen", lambda command, **_: commands.append(command))
    EngineSelector(spec, "float32").compile_beside(1e9, "hf://owner/name")
    assert commands[0][3:] == ["float32", "demo_en_de", *["hf://owner/name"] * eight_bits]


WAITS = """
import time
import keras_attention_light
from keras_attention.engine import select
started, _, _ = select.COMPILER.partition("import keras_attention_light")
select.COMPILER = started + "import time; time.sleep(300)"
model = keras_attention_light.load_translator("demo_en_de").model
select.EngineSelector(model, "float32").compile_beside(1e9)
print(select._compilers[0].pid, flush=True)
time.sleep(300)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_ends_leaves_no_compiler(end):
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{int(process.stdout.readline())}/status")
        assert status.exists()
        process.send_signal(end)
        assert process.wait(timeout=60) != 0
    deadline = time.monotonic() + 60
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
