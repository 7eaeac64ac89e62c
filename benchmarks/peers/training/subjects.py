"""The subjects of `train_update.py`: ours on each backend, the peers, the ceilings."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from harness import Outcome, Spec

from peers.backends import BACKENDS, installed_backends, keras_environment
from peers.training.workloads import Workload

PEERS = ("hf", "torch", "kerashub", "kerashub-xla", "weighted")


def subjects(options: argparse.Namespace, workload: Workload, path: Path) -> list[Spec]:
    """Ours first, then the peers."""
    common = {
        "sizes": dataclasses.asdict(workload.sizes),
        "batches": str(path),
        "unit": workload.unit,
        "dtype": options.dtype,
    }
    backends = options.backends
    if backends is None:
        backends = [name for name in BACKENDS if name in installed_backends()]
        if options.workload == "paper":
            backends = [name for name in backends if name != "tensorflow"]
    ours = {**common, "accumulation_steps": options.accumulation_steps}
    if options.jit_compile:
        ours["jit_compile"] = {"true": True, "false": False}.get(options.jit_compile, "auto")
    specs = [
        Spec(
            f"keras_attention, {BACKENDS[backend]}",
            "peers.training.ours:KerasAttention",
            ours,
            keras_environment(backend),
            {backend: backend, "keras": "keras"},
        )
        for backend in backends
    ]
    if options.baseline:
        specs += [
            dataclasses.replace(
                spec,
                name=f"{spec.name}, {options.baseline}",
                environment=keras_environment(backend, options.baseline),
            )
            for backend, spec in zip(backends, specs, strict=True)
        ]
    for peer in options.against:
        specs += peer_specs(peer, common, backends)
    return specs


def peer_specs(peer: str, common: dict[str, Any], backends: Any) -> list[Spec]:
    """Return the subjects that a name of `--against` stands for; KerasHub's on the backends of ours."""
    torch = {"torch": "torch"}
    if peer == "hf":
        needs = {**torch, "transformers": "transformers"}
        return [Spec("HF Marian", "peers.training.huggingface:Marian", common, {}, needs)]
    if peer == "torch":
        target = "peers.training.torch_transformer:TorchTransformer"
        return [Spec("torch.nn.Transformer", target, common, {}, torch)]
    if peer == "weighted":
        return [
            Spec(
                f"weighted, {BACKENDS[backend]}",
                "peers.training.ours:WeightedTransformer",
                common,
                keras_environment(backend),
                {backend: backend, "keras": "keras"},
            )
            for backend in backends
        ]
    # Keras' own choice on TensorFlow is XLA, which on a CPU is often the slower one: both.
    xla = peer == "kerashub-xla"
    return [
        Spec(
            f"KerasHub, {BACKENDS[backend]}{', XLA' if xla else ''}",
            "peers.training.kerashub:KerasHub",
            {**common, "jit_compile": False if backend == "tensorflow" and not xla else "auto"},
            keras_environment(backend),
            {backend: backend, "keras_hub": "keras-hub"},
        )
        for backend in (["tensorflow"] if xla else backends)
    ]


def ceilings(options: argparse.Namespace, present: list[Spec]) -> list[Spec]:
    """Return a subject of large products for NumPy and for each framework that runs."""
    if not options.ceiling_size:
        return []
    dtype = "bfloat16" if options.dtype == "mixed_bfloat16" else "float32"
    used = {module for spec in present for module in spec.requires}
    frameworks = [name for name in BACKENDS if name in used]
    frameworks += ["numpy"] if dtype == "float32" and not run_on_gpu() else []
    return [
        Spec(
            f"GEMM {dtype}, {BACKENDS.get(framework, 'NumPy')}",
            "harness.gemm:Gemm",
            {"framework": framework, "dtype": dtype, "size": options.ceiling_size},
            keras_environment(framework),
            is_ceiling=True,
        )
        for framework in frameworks
    ]


def run_on_gpu() -> bool:
    """Whether there is an NVIDIA GPU, whose products NumPy's say nothing about."""
    return Path("/proc/driver/nvidia").exists()


def is_ours(outcome: Outcome) -> bool:
    """Whether a subject is this package."""
    return outcome.spec.target == "peers.training.ours:KerasAttention"
