"""What every program of the training comparison has in common."""

from __future__ import annotations

from typing import Any

from peers.peer import Peer
from peers.training.batches import read_batches, tokens, training_flop
from peers.weights import Sizes


class Program(Peer):
    """Trains on the batches of a file.

    Args:
        sizes: Arguments of `Sizes`.
        batches: The file of `write_batches`.
        unit: What a sample is: `"update"`, one batch after the other, or `"epoch"`, all of them.
        dtype: `"float32"` or `"mixed_bfloat16"`.
        label_smoothing: The paper's epsilon_ls.
        learning_rate: Constant; it costs the same everywhere.
        **own: What a program adds, as attributes.
    """

    def __init__(
        self,
        sizes: dict[str, Any],
        batches: str,
        unit: str = "update",
        dtype: str = "float32",
        label_smoothing: float = 0.1,
        learning_rate: float = 1e-4,
        **own: Any,
    ) -> None:
        if unit not in ("update", "epoch"):
            raise ValueError(f"`unit` must be 'update' or 'epoch'. Received: {unit!r}")
        self.sizes, self.unit, self.dtype = Sizes(**sizes), unit, dtype
        self.label_smoothing, self.learning_rate = label_smoothing, learning_rate
        self.batches, _ = read_batches(batches)
        self._next = 0
        for name, value in own.items():
            setattr(self, name, value)
        self.import_libraries()

    def work(self) -> dict[str, float]:
        per_sample = self.batches if self.unit == "epoch" else self.batches[:1]
        return {
            "tokens": tokens(per_sample),
            "flop": training_flop(self.sizes.as_options(), per_sample),
            "updates": len(per_sample),
        }

    def next_batches(self, count: int) -> list[Any]:
        """Return the batches of the next `count` updates, in a circle over updates of one shape."""
        chosen = [self.batches[(self._next + i) % len(self.batches)] for i in range(count)]
        self._next = (self._next + count) % len(self.batches)
        return chosen
