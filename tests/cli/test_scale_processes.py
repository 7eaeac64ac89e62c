"""The commands of docs/scale.md that train, on loopback: of eight GPUs, or four machines, two processes.

All of them with KERAS_ATTENTION_LONG_PROCESSES=1.
"""

import json
import os
import re
import shlex
import socket
import sys

import keras
import pytest

from keras_attention.cli.main import main
from tests.cli.test_scale import TRAINING, arguments_of
from tests.recipes.process_jobs import compiler_flags, started
from tests.recipes.small_runs import write_files

pytestmark = pytest.mark.backends("jax", "torch")

BACKEND = keras.backend.backend()
LONG = "KERAS_ATTENTION_LONG_PROCESSES" in os.environ
LINES = [
    line
    for line in TRAINING
    if re.findall(r"KERAS_BACKEND=(\w+)", line) == [BACKEND]
    # Those that start one process, or begin by `srun` or without a rendezvous, are the same from there on;
    # ../recipes and ../training train so, and test_scale.py has what each asks for.
    and (LONG or "--rdzv-backend" in line or "KERAS_DISTRIBUTION" in line)
]
SMALL = shlex.split(
    "--preset tiny --num-layers 1 --hidden-dim 8 --intermediate-dim 12 --num-heads 2 --vocabulary-size 320 "
    "--batch-tokens 2400 --max-shapes 2 --steps 2 --warmup-steps 2 --bleu-every 100 "
    "--beam-size 1 --no-attention-log"
)


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, "train", 0, 60)
    return tmp_path


def check_run(folder, outputs):
    """The run is there, and one process has spoken of it."""
    assert [code for code, _ in outputs] == [0] * len(outputs), outputs[0][1][-3000:]
    report = json.loads((folder / "runs" / "de-en" / "report.json").read_text())
    assert report["training"]["updates"] == 2 and report["config"]["row_multiple"] == 24
    assert sum(text.count("The run is in ") for _, text in outputs) == 1


def slurm(index, count, port):
    """What `srun` tells a process."""
    facts = {"JOB_ID": port, "NTASKS": count, "PROCID": index, "LOCALID": index}
    facts |= {"STEP_NODELIST": "localhost", "STEP_NUM_NODES": 1}
    return {"JAX_PLATFORMS": "cpu"} | {f"SLURM_{name}": str(fact) for name, fact in facts.items()}


def keras_variables(line):
    """Those of the command, for this machine."""
    names = dict(re.findall(r"(KERAS_DISTRIBUTION_\w+)=(\S+)", line))
    host = names["KERAS_DISTRIBUTION_JOB_ADDRESSES"].partition(":")[0]

    def environment(index, count, port):
        known = {"JOB_ADDRESSES": f"127.0.0.1:{port}", "NUM_PROCESSES": count, "PROCESS_ID": index}
        own = {f"KERAS_DISTRIBUTION_{name}": str(value) for name, value in known.items()}
        assert own.keys() == names.keys() and host == "10.0.0.1"
        return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": compiler_flags(devices=1), **own}

    return environment


@pytest.mark.parametrize("line", LINES)
def test_the_command_trains(line, text, capfd):
    before, arguments = arguments_of(line)
    arguments += SMALL
    by_module = [sys.executable, "-m", "keras_attention_light", *arguments]
    if "torchrun" in before:
        told = " ".join(before[before.index("torchrun") + 1 : before.index("-m")])
        machines = 2 if "--nnodes" in told else 1
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        told = re.sub(r"--nnodes \d+", "--nnodes 2", told)
        told = re.sub(r"--nproc-per-node \d+", f"--nproc-per-node {2 // machines}", told)
        told = told.replace("10.0.0.1:29400", f"127.0.0.1:{port}")
        starter = [sys.executable, "-m", "torch.distributed.run", *shlex.split(told)]
        command = [*starter, "-m", "keras_attention_light", *arguments]
        check_run(text, started(lambda _: command, machines, text, lambda *_: {}))
    elif "srun" in before or any(word.startswith("KERAS_DISTRIBUTION") for word in before):
        environment = slurm if "srun" in before else keras_variables(line)
        check_run(text, started(lambda _: by_module, 2, text, environment))
    else:
        main(arguments)
        check_run(text, [(0, capfd.readouterr().out)])


JOIN = """
from keras_attention.training.agreement import values_of_all
from keras_attention.training.distribution import distribution_scope
with distribution_scope("data_parallel") as devices:
    print(devices, values_of_all(devices.process_index))
"""


def open_mpi(index, count, port):
    """What `mpirun` tells a process."""
    facts = {"COMM_WORLD_SIZE": count, "COMM_WORLD_RANK": index, "COMM_WORLD_LOCAL_RANK": index}
    facts["MCA_orte_hnp_uri"] = f"{port * 4096}.0;tcp://127.0.0.1:{port}"
    return {"JAX_PLATFORMS": "cpu"} | {f"OMPI_{name}": str(fact) for name, fact in facts.items()}


@pytest.mark.backends("jax")
@pytest.mark.parametrize("cluster", [slurm, open_mpi], ids=["slurm", "open_mpi"])
def test_processes_of_a_cluster_join(cluster):
    environment = lambda *given: {"XLA_FLAGS": "", **cluster(*given)}  # noqa: E731
    outputs = started(lambda _: [sys.executable, "-c", JOIN], 2, environment=environment)
    for index, (code, text) in enumerate(outputs):
        assert code == 0, text[-3000:]
        known = f"Devices(num_replicas=2, num_processes=2, process_index={index}) [0, 1]"
        assert text.splitlines()[-1] == known


@pytest.mark.backends("torch")
def test_a_port_that_is_taken_ends_with_a_message(text, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**told, "MASTER_PORT": server.getsockname()[1]}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(SystemExit) as left:
            main(["train", "--output-dir", "run", "--strategy", "data_parallel"])
    assert left.value.code == 1
    assert "is its port free?" in capsys.readouterr().err
    assert not (text / "run").exists()
