"""The versions in a run's record."""

import subprocess
from pathlib import Path

import pytest

import keras_attention
from keras_attention.utils.versions import checked_out_commit, versions

pytestmark = pytest.mark.backends("tensorflow")

COMMIT, OTHER = "1f" * 20, "2e" * 20


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"},
        {".git/HEAD": f"{COMMIT}\n", ".git/refs/heads/main": f"{OTHER}\n"},
        {
            ".git/HEAD": "ref: refs/heads/a/b\n",
            ".git/packed-refs": f"# pack\n{OTHER} refs/heads/b\n{COMMIT} refs/heads/a/b\n^{OTHER}\n",
        },
        {
            ".git": "gitdir: ../main/.git/worktrees/own\n",
            "../main/.git/worktrees/own/HEAD": "ref: refs/heads/own\n",
            "../main/.git/worktrees/own/commondir": "../..\n",
            "../main/.git/refs/heads/own": f"{COMMIT}\n",
        },
    ],
    ids=["branch", "detached", "packed", "work tree"],
)
def test_the_commit_of_a_checkout(tmp_path, files):
    root = tmp_path / "own"
    root.mkdir()
    assert checked_out_commit(root) is None
    write(root, files)
    assert checked_out_commit(root) == COMMIT


def test_our_own_version_and_commit():
    found = versions()
    assert found["keras_attention"] == keras_attention.__version__
    root = Path(keras_attention.__file__).resolve().parents[1]
    try:
        asked = ["git", "-C", str(root), "rev-parse", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no checkout, or no git")
    assert found["commit"] == commit
