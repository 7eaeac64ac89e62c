"""Programs in plain PyTorch: the loop that everybody writes, with the fused Adam and autocast."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from peers.training.program import Program
from peers.weights import make_weights


class TorchProgram(Program):
    """A `torch.nn.Module`; the subclass makes it. Trains on a GPU if there is one.

    A sample is an update with the loss read at its end, or an epoch with it read once.
    """

    def import_libraries(self) -> None:
        import torch

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def module(self, weights: dict[str, Any]) -> Any:
        """Return the model with these weights."""
        raise NotImplementedError

    def logits(self, source: Any, decoder: Any) -> Any:
        """Logits `(B, T, V)` of `self.model`."""
        raise NotImplementedError

    def build(self) -> dict[str, Any]:
        self.model = self.module(make_weights(self.sizes)).to(self.device)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = self.torch.optim.Adam(
            parameters, self.learning_rate, (0.9, 0.98), 1e-9, fused=True
        )
        return {
            "backend": "torch",
            "versions": {"torch": self.torch.__version__},
            "parameters": sum(p.numel() for p in parameters),
            "threads": self.torch.get_num_threads(),
        }

    def check(self) -> dict[str, float]:
        self.model.eval()
        with self.torch.no_grad():
            return {"loss": float(self._loss(self.batches[0]))}

    def run(self, count: int) -> list[float]:
        self.model.train()
        seconds = []
        updates = self.next_batches(count) if self.unit == "update" else range(count)
        for update in updates:
            started = time.perf_counter()
            for batch in [update] if self.unit == "update" else self.batches:
                self.optimizer.zero_grad(set_to_none=True)
                loss = self._loss(batch)
                loss.backward()
                self.optimizer.step()
            loss.item()  # Waits for the device.
            if self.device == "cuda":
                self.torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        return seconds

    def memory(self) -> dict[str, int]:
        if self.device == "cpu":
            return {}
        return {"device_peak_bytes": self.torch.cuda.max_memory_allocated()}

    def _loss(self, batch: Any) -> Any:
        torch, size = self.torch, self.sizes.vocabulary_size
        source, decoder, labels = (torch.from_numpy(a).long().to(self.device) for a in batch)
        autocast: Any = contextlib.nullcontext()
        if self.dtype == "mixed_bfloat16":
            autocast = torch.autocast(self.device, torch.bfloat16)
        with autocast:
            return torch.nn.functional.cross_entropy(
                self.logits(source, decoder).view(-1, size),
                labels.view(-1),
                ignore_index=0,
                # Ours gives the label itself no share of the smoothing.
                label_smoothing=self.label_smoothing * size / (size - 1),
            )
