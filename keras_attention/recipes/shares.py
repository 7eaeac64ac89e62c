"""How the devices of a run share its batches, and which others may go on with them."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from keras_attention.models.transformer import Transformer
from keras_attention.ops.dispatch import backend_choice
from keras_attention.recipes.config import TranslationConfig
from keras_attention.training.agreement import chief_first, values_of_all
from keras_attention.training.distribution import Devices, is_chief
from keras_attention.utils.checks import divisors
from keras_attention.utils.files import PARTIAL, write_atomically
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import RunFolder


class Shares:
    """How a batch is shared out. Each share draws dropout masks of its own, so a change is told."""

    def __init__(self, model: Transformer, config: TranslationConfig, devices: Devices):
        # On JAX, the masks are those of the whole batch, however many devices share it.
        replicas = backend_choice("Dropout", jax=1, default=devices.num_replicas)
        self.state = {"replicas": replicas, "parts": config.accumulation_steps}
        rates = {name: rate for name, rate in model.get_config().items() if "dropout" in name}
        self.drops = any(rates.values())

    def get_state(self) -> dict[str, int]:
        """Return the shares of this start."""
        return self.state

    def set_state(self, state: dict[str, int]) -> None:
        """Say that the masks change, if the shares do."""
        if self.drops and state != self.state:
            before, now = (f"{s['replicas']} x {s['parts']}" for s in (state, self.state))
            say(
                f"Dropout draws other masks from now on: a batch has {now} shares (devices x parts), had "
                f"{before}. The result is another one, of the same quality."
            )


def check_shares(folder: RunFolder, devices: int, parts: int) -> None:
    """Raise a ValueError unless devices can share the batches of the run that trained in the folder."""
    rows = 0
    with contextlib.suppress(ValueError, OSError):  # `folder.check` says what is wrong there.
        rows = folder.settings().get("row_multiple", 0)
    if rows % (devices * parts):
        ways = []
        if rows % devices == 0:
            ways.append(f"on {devices} device(s) with {divisors(rows // devices)} part(s)")
        if rows % parts == 0:
            ways.append(f"on {divisors(rows // parts)} device(s) with {parts} part(s)")
        raise ValueError(
            f"The run in '{folder.path}' has batches of a multiple of {rows} sentences, which "
            f"{devices} device(s) with {parts} part(s) each cannot share evenly. With "
            f"row_multiple={rows} it can continue "
            f"{' or '.join(ways) or f'on {divisors(rows)} device(s) with 1 part(s)'}. Any other "
            "number of devices or parts (accumulation_steps) needs a new run."
        )


def check_is_shared(folder: Path) -> None:
    """Raise unless all processes see the run's folder of process 0, where nothing is left."""
    mark = folder / f"{PARTIAL}{values_of_all(uuid.uuid4().hex)[0]}"
    try:
        with chief_first():
            if is_chief():
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(mark, "")
            elif not mark.exists():
                raise ValueError(
                    f"Process 0 wrote a file into the run's folder '{folder.resolve()}', but this "
                    "process does not see it. Choose an output folder that all machines share."
                )
    finally:
        if is_chief():
            mark.unlink(missing_ok=True)
