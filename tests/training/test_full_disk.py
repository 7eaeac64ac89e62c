"""A disk that is really full, not a simulated one: a small file system in memory, which root can make."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.backends("torch")

ROOT = Path(__file__).resolve().parents[2]
CAN_MOUNT = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
)
PROGRAM = """
import errno, os, pathlib, sys
import keras, numpy as np
from keras_attention.training.checkpoint_store import load_checkpoint, write_checkpoint

folder = pathlib.Path(sys.argv[1])
model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(1000, kernel_initializer="ones")])
model.compile("sgd", "mse")
model.optimizer.build(model.trainable_variables)

def save():
    write_checkpoint(folder / "update-00000001", model, {}, replace=True)

save()
before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
(folder / "of another program").write_bytes(bytes(700_000))
try:
    save()
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    assert "No space left" in str(error) and str(folder) in str(error), error
else:
    raise AssertionError("there was room")
assert all(path.read_bytes() == content for path, content in before.items())
(folder / "of another program").unlink()
save()
assert {path for path in folder.rglob("*") if path.is_file()} == {*before}, "something is left over"
print("goes on")
"""


@pytest.mark.skipif(not CAN_MOUNT, reason="needs root, to make a small disk")
def test_a_full_disk_loses_nothing_and_the_same_goes_on(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [
            *("unshare", "-m", "bash", "-c"),
            'mount -t tmpfs -o size=1400k tmpfs "$0" && exec "$1" -c "$2" "$0"',
            *(str(disk), sys.executable, PROGRAM),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == "goes on\n", done.stderr
    assert "h5py" not in done.stderr
