"""`keras-attention average RUN`: the mean of a run's checkpoints, as a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_attention.cli.options import Parser, adding
from keras_attention.cli.quiet import start_backend
from keras_attention.utils.arguments import Count
from keras_attention.utils.checks import counted
from keras_attention.utils.files import atomic_path, check_destination
from keras_attention.utils.progress import activity
from keras_attention.utils.run_folder import RunFolder

EXAMPLE = """
example, and how to read the file:
  keras-attention average runs/demo --last 3 --output average.keras
  python -c "import keras, keras_attention; keras.saving.load_model('average.keras').summary()"
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Average the last checkpoints of a run into a new file."""
    parser = Parser(
        prog=program,
        description="Average the last checkpoints of a run, as section 6.1 of the paper does. The run "
        "itself stays as it is.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("RUN", "the run's folder", Path)
    add("--last N", "how many of the newest checkpoints to average (as many as the run did)", Count)
    add("--output FILE", "a new file that ends in .keras", Path, required=True)
    options = parser.parse_args(arguments)
    run = RunFolder(options.run)
    settings = run.settings(["averaged_checkpoints"])
    if options.output.suffix != ".keras":
        raise ValueError(f"--output must end in .keras. Received: {options.output}")
    check_destination(options.output)
    run.check_finished()
    start_backend()
    from keras_attention.models.keras_folder import model_of_run
    from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
    from keras_attention.training.checkpoints import average_checkpoints

    checkpoints = ChosenCheckpoints(run, settings)
    chosen = checkpoints.averaged(options.last)
    moves = options.last is None and settings.get("ema") is not None
    if options.last is not None and options.last > len(chosen):
        raise ValueError(
            f"--last must be at most {len(chosen)}, the number of checkpoints in '{run.checkpoints}' that "
            f"the run would average. Received: {options.last}. Give less, or leave --last out."
        )
    with activity(f"averaging {counted(len(chosen), 'checkpoint')}"):
        model = model_of_run(run)
        model.compile(optimizer=None)  # Weights are wanted, not the state of an optimizer.
        (checkpoints.load if moves else average_checkpoints)(model, chosen)
        with atomic_path(options.output, is_new=True) as partial:
            model.save(partial)
    names = ", ".join(path.name for path in chosen)
    print(f"The {'moving ' * moves}average of {names} is in {options.output}")
