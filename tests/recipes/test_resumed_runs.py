"""Runs that are stopped, resumed and prolonged end in the same bits as an undisturbed run."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import types

import h5py
import keras
import numpy as np
import pytest

from keras_attention.callbacks import ConsoleProgress, TranslationScores, ValidationPerplexity
from keras_attention.cli.train import run
from keras_attention.data.mixed_batches import MixedBatches
from keras_attention.evaluation import Sentences
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.recipes import checkpoint_translator, order
from keras_attention.recipes.finished_run import FinishedRun
from keras_attention.recipes.run import Run
from keras_attention.recipes.shares import Shares
from keras_attention.training.checkpoints import load_moving_average
from keras_attention.training.distribution import Devices
from keras_attention.utils.files import read_json, write_json
from keras_attention.utils.run_folder import RunFolder
from tests.helpers import contents
from tests.recipes.small_runs import SMALL, small_corpus, training_alone, write_files

TINY = dataclasses.replace(
    SMALL,
    model_arguments={"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2},
    beam_size=1,
    bleu_every=100,
)
STEPS, MORE_STEPS = 10, 16
# Of 10 updates, the rate falls in the last 3; of 16 in the last 5; of 8 in the last 2.
COOLED = dataclasses.replace(
    TINY, peak_learning_rate=0.02, cooldown=0.3, warmup_steps=3, attention_log=False
)

# Many starts: where nothing is compiled. test_run.py and test_resume.py stop runs on each backend.
pytestmark = pytest.mark.backends("torch")


def train(files, folder, steps=STEPS, config=TINY):
    """What an example does with these arguments; `steps` may be another option."""
    own = ["--source-file", str(files[0]), "--target-file", str(files[1])]
    budget = ["--steps", str(steps)] if isinstance(steps, int) else [steps]
    arguments = [*own, *budget, "--output-dir", str(folder)]
    return run("Trains.", arguments=arguments, recipes={"files": config})


def stopped(files, folder, number, update, steps=STEPS, config=TINY, start=train):
    """Train until a signal comes at the beginning of an update; return the code of exit."""
    original = ConsoleProgress.on_train_batch_begin

    def on_train_batch_begin(self, batch, logs=None):
        if self.budget.updates == update:
            os.kill(os.getpid(), number)
        original(self, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsoleProgress, "on_train_batch_begin", on_train_batch_begin)
        with pytest.raises(SystemExit) as left:
            start(files, folder, steps, config)
    return left.value.code


def numbers_of(checkpoint):
    """Weights and optimizer, as bytes; the draws of dropout; the running metrics; the place."""
    arrays = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()].tobytes()

    with h5py.File(checkpoint / "model.weights.h5") as file:
        file.visititems(keep)
    manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
    return arrays, {name: manifest[name] for name in ("epoch", "batch", "random_states", "metrics")}


def train_alone(files, folder, steps, config=TINY):
    """Train, without the scores that come after it; return the history of the epochs."""
    with training_alone():
        return train(files, folder, steps, config)["training"]["history"]


def same_state(folder, other, updates):
    """Whether the checkpoints after this many updates of two runs are equal in every bit."""
    (arrays, rest), (other_arrays, other_rest) = (
        numbers_of(path / "checkpoints" / f"update-{updates:08d}") for path in (folder, other)
    )
    assert len(arrays) > 60 and arrays.keys() == other_arrays.keys()
    different = [name for name in arrays if arrays[name] != other_arrays[name]]
    return different == [] and rest == other_rest


def last_checkpoint(folder):
    return max(path.name for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def disturbed(files, tmp_path_factory):
    """The folder of a run that two signals stopped on its way, and two when it had trained; what
    happened then, its first report.
    """
    folder = tmp_path_factory.mktemp("runs") / "run"
    happened = []
    for number, update in ((signal.SIGINT, 3), (signal.SIGTERM, 6)):
        with contextlib.redirect_stderr(io.StringIO()) as output:
            code = stopped(files, folder, number, update)
        happened.append(
            (code, last_checkpoint(folder), (folder / "report.json").exists(), output.getvalue())
        )
    for number in (signal.SIGINT, signal.SIGTERM):
        with (
            contextlib.ExitStack() as changed,
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stderr(io.StringIO()) as output,
        ):
            # As in a new process: another program's handler, such as Ray's, would be left alone.
            changed.callback(
                signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL)
            )
            patch.setattr(order, "evaluate", lambda _, number=number: os.kill(os.getpid(), number))
            with pytest.raises(SystemExit) as left:
                train(files, folder)
        report = (folder / "report.json").exists()
        happened.append((left.value.code, last_checkpoint(folder), report, output.getvalue()))
    return folder, happened, train(files, folder)


def test_a_signal_saves_and_says_how_to_go_on(disturbed):
    _, happened, report = disturbed
    codes, checkpoints, reports, outputs = zip(*happened, strict=True)
    assert codes == (130, 143, 130, 143)  # 128 + the numbers of SIGINT and SIGTERM
    assert checkpoints[:2] == ("update-00000003", "update-00000006")
    assert checkpoints[2:] == (f"update-{STEPS:08d}",) * 2
    assert not any(reports)
    for output in outputs[2:]:
        assert "The training is done and saved, its report is not. The same command" in output
    for name, checkpoint, output in zip(("SIGINT", "SIGTERM"), checkpoints, outputs, strict=False):
        assert f"Stopped by {name} and saved as " in output and checkpoint in output
        assert "The same command continues this run." in output
    assert "Continuing in epoch" not in outputs[0] and "Continuing in epoch" in outputs[1]
    assert report["training"]["updates"] == STEPS


def test_a_changed_text_is_refused_and_nothing_is_overwritten(
    files, disturbed, tmp_path, refused_by
):
    folder, _, _ = disturbed
    before = contents(folder)
    source, target = (tmp_path / file.name for file in files)
    source.write_bytes(files[0].read_bytes())
    lines = files[1].read_text("utf-8").splitlines()
    target.write_text("\n".join([*lines[:-1], "Etwas anderes.", ""]), "utf-8")
    error = refused_by(train, (source, target), folder)
    assert f"'{folder}' has another configuration (the " in error and " text differs" in error
    assert "Nothing was changed there" in error
    assert contents(folder) == before


def test_parts_that_cannot_share_the_batches_are_answered_with_those_that_can(tmp_path):
    """The next start with the advice gets past every check; what was asked for is refused first."""
    config = dataclasses.replace(TINY, row_multiple=24)
    corpus, folder = small_corpus(tmp_path), RunFolder(tmp_path / "run")
    folder.claim(Run(corpus, config, folder.path).settings)
    (folder.checkpoints / "update-00000001").mkdir(parents=True)

    def start(parts):
        changed = dataclasses.replace(config, accumulation_steps=parts)
        run = Run(corpus, changed, folder.path)
        run.check()
        return run.settings

    for parts in (5, 9, 48):
        with pytest.raises(
            ValueError, match=rf"24 sentences, which 1 .* with {parts} part"
        ) as error:
            start(parts)
        assert "batch_tokens" not in str(error.value)
        (advice,) = re.findall(r"on 1 device\(s\) with ([\d, ]+) part", str(error.value))
        assert advice.split(", ") == [str(n) for n in range(1, 25) if 24 % n == 0]
    for number in map(int, advice.split(", ")):
        assert start(number)["row_multiple"] == 24


def test_dropout_that_draws_other_masks_is_told(capsys):
    model = types.SimpleNamespace(get_config=lambda: {"dropout": 0.0, "attention_dropout": 0.1})
    before, parts = Devices(num_replicas=2), dataclasses.replace(TINY, accumulation_steps=3)
    state = Shares(model, TINY, before).get_state()
    Shares(model, TINY, before).set_state(state)
    assert capsys.readouterr().err == ""
    Shares(model, parts, Devices()).set_state(state)
    said = capsys.readouterr().err
    assert (
        "a batch has 1 x 3 shares (devices x parts), had 2 x 1." in said
        and len(said.splitlines()) == 1
    )
    plain = types.SimpleNamespace(get_config=lambda: {"dropout": 0.0, "attention_dropout": 0.0})
    Shares(plain, parts, Devices()).set_state(state)
    assert capsys.readouterr().err == ""


def test_stopped_and_prolonged_it_ends_as_in_one_go(files, disturbed, tmp_path):
    folder, _, first = disturbed
    report = train(files, folder, MORE_STEPS)
    history = train_alone(files, tmp_path / "whole", MORE_STEPS)
    assert (first["training"]["updates"], report["training"]["updates"]) == (STEPS, MORE_STEPS)
    assert read_json(folder / "report.json") == report
    assert same_state(folder, tmp_path / "whole", MORE_STEPS)
    losses = [[epoch["loss"] for epoch in h] for h in (report["training"]["history"], history)]
    assert losses[0] == losses[1] and len(losses[0]) > 1


@pytest.fixture(scope="module")
def cooled(files, tmp_path_factory):
    """The folder of a finished run whose rate fell to 0; it was stopped before that and within it."""
    folder = tmp_path_factory.mktemp("runs") / "cooled"
    for update in (5, 9):
        assert stopped(files, folder, signal.SIGINT, update, config=COOLED) == 130
    report = train(files, folder, config=COOLED)
    assert report["training"]["updates"] == STEPS
    return folder, report


def test_a_rate_that_falls_at_the_end_goes_on_from_every_place(files, cooled, tmp_path):
    """Stopped on its way, prolonged when it was finished: as the run with that budget at once."""
    folder, report = tmp_path / "run", cooled[1]
    shutil.copytree(cooled[0], folder)
    train_alone(files, tmp_path / "whole", STEPS, COOLED)
    assert same_state(folder, tmp_path / "whole", STEPS)
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert max(line["update"] for line in log) == STEPS
    kept = [path.name for path in (folder / "checkpoints").iterdir()]
    assert "update-00000007" in kept  # where the rate began to fall

    both = folder, tmp_path / "longer"
    histories = [train_alone(files, one, MORE_STEPS, COOLED) for one in both]
    assert same_state(*both, MORE_STEPS)
    losses = [[epoch["loss"] for epoch in history] for history in histories]
    assert losses[0] == losses[1] and len(losses[0]) > 1
    assert read_json(folder / "config.json")["steps"] == MORE_STEPS != report["config"]["steps"]


def test_a_run_that_is_finished_early_is_the_run_with_the_smaller_budget(files, tmp_path, capsys):
    folder = tmp_path / "run"
    assert stopped(files, folder, signal.SIGTERM, 6, MORE_STEPS, COOLED) == 143
    report = train(files, folder, "--finish", COOLED)
    said = capsys.readouterr().err
    assert "Finishing: this run ends after 8 updates." in said
    assert "Budget: 2 of 8 updates left" in said
    assert report["training"]["updates"] == report["config"]["steps"] == 8
    train_alone(files, tmp_path / "whole", 8, COOLED)
    assert same_state(folder, tmp_path / "whole", 8)
    # Once more, it is finished; with the old budget, it goes on from where it was stopped.
    assert train(files, folder, "--finish", COOLED) == report
    train_alone(files, folder, MORE_STEPS, COOLED)
    assert last_checkpoint(folder) == f"update-{MORE_STEPS:08d}"


def test_a_damaged_checkpoint_is_left_out_of_the_average(files, tmp_path, monkeypatch, capsys):
    """Of the one that is averaged, and of the systems that the report compares."""
    config = dataclasses.replace(TINY, checkpoint_updates=2, averaged_checkpoints=3)
    average = order.average

    def damaged(run):
        path = run.folder.checkpoints / "update-00000008" / "model.weights.h5"
        path.write_bytes(path.read_bytes()[:-1])
        average(run)

    monkeypatch.setattr(order, "average", damaged)
    report = train(files, tmp_path / "run", config=config)
    assert report["training"]["averaged_from"] == ["update-00000006", "update-00000010"]
    assert list(report["evaluation"]["systems"])[-1] == "average of 2"
    assert "kept as 'aside-1-update-00000008'; the average leaves it out" in capsys.readouterr().err


def test_without_a_cooldown_finishing_takes_what_is_there(files, tmp_path, capsys):
    folder = tmp_path / "run"
    assert stopped(files, folder, signal.SIGINT, 6) == 130
    report = train(files, folder, "--finish")
    assert report["training"]["updates"] == report["config"]["steps"] == 6
    assert (folder / "model.keras").exists() and "ends after 6 updates" in capsys.readouterr().err


def test_a_smaller_budget_ends_where_it_says(files, tmp_path):
    folder = tmp_path / "run"
    assert stopped(files, folder, signal.SIGINT, 9, MORE_STEPS, COOLED) == 130
    train_alone(files, folder, 11, COOLED)  # The rate falls from here, not from update 8.
    assert last_checkpoint(folder) == "update-00000011"
    state = read_json(folder / "checkpoints" / "update-00000011" / "manifest.json")
    assert state["callbacks"]["Budget"]["cooldown"]["updates"] == 9


@pytest.mark.parametrize(
    "config, steps, message",
    [
        (COOLED, 7, "has trained 7 updates at its full learning rate, so --steps 7 leaves nothing"),
        (
            dataclasses.replace(COOLED, cooldown=None),
            30,
            "the learning rate of that run falls from",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_refused_and_changes_nothing(
    files, cooled, tmp_path, refused_by, config, steps, message
):
    folder = tmp_path / "run"
    shutil.copytree(cooled[0], folder)
    settings = read_json(folder / "config.json")
    write_json(folder / "config.json", {**settings, "cooldown": config.cooldown, "steps": STEPS})
    before = contents(folder)
    error = refused_by(train, files, folder, steps, config)
    assert message in error and "--finish" in error and "Nothing was changed" in error
    assert contents(folder) == before


# After the ends of epochs, which have 6 updates; within an epoch it is 45.
PERPLEXITIES = {6: 90.0, 12: 50.0, 18: 80.0, 24: 40.0, 30: 60.0}


@pytest.fixture
def known_perplexities(monkeypatch):
    def measure(callback):
        return {"val_perplexity": PERPLEXITIES.get(int(callback.model.optimizer.iterations), 45.0)}

    monkeypatch.setattr(ValidationPerplexity, "measure", measure)


BEST = dataclasses.replace(
    TINY, best_by="perplexity", final_model="best", averaged_checkpoints=1, attention_log=False
)


def test_the_best_checkpoint_is_the_result(files, tmp_path, known_perplexities, capsys):
    """Stopped twice, ended, prolonged: each time the best is that of a run in one go."""
    folder = tmp_path / "run"
    assert stopped(files, folder, signal.SIGINT, 14, 17, BEST) == 130
    assert stopped(files, folder, signal.SIGTERM, 15, 17, BEST) == 143
    report = train(files, folder, 17, BEST)
    found = {"by": "perplexity", "name": "update-00000017", "value": 45.0, "is_final": True}
    assert report["training"]["best_checkpoint"] == found  # where it ended
    # Named once, though it is the last one, too.
    assert list(report["evaluation"]["systems"]) == ["best by perplexity (update-00000017)"]
    assert report["last_validation_perplexity"] == report["validation_perplexity"]
    report = train(files, folder, 33, BEST)
    found |= {"name": "update-00000024", "value": 40.0}
    assert report["training"]["best_checkpoint"] == found
    assert train_alone(files, tmp_path / "whole", 33, BEST)
    names = [
        sorted(p.name for p in (x / "checkpoints").iterdir()) for x in (folder, tmp_path / "whole")
    ]
    assert names[0] == names[1] and "update-00000024" in names[0] and len(names[0]) <= 3

    # The model is that checkpoint, here and in the files; the report says so.
    systems = report["evaluation"]["systems"]
    assert list(systems)[-1] == "best by perplexity (update-00000024)"
    assert systems[list(systems)[-1]]["scores"]["bleu"]["score"] == report["test"]["bleu"]
    text = " ".join((folder / "report.txt").read_text("utf-8").split())
    assert "best checkpoint update-00000024, by validation perplexity 40.00" in text
    assert "result best by perplexity (update-00000024)" in text
    assert "the best checkpoint by perplexity, update-00000024" in capsys.readouterr().out
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    best, last = (checkpoint_translator(folder, name).model for name in ("best", "last"))
    weights = [
        [keras.ops.convert_to_numpy(v) for v in m.trainable_weights] for m in (model, best, last)
    ]
    assert all(map(np.array_equal, weights[0], weights[1]))
    assert not all(map(np.array_equal, weights[0], weights[2]))
    assert (
        FinishedRun(folder).evaluation(Sentences(["a b"], ["c d"]))["best"]["name"]
        == "update-00000024"
    )


def test_patience_goes_by_the_same_measure(
    files, tmp_path, known_perplexities, monkeypatch, capsys
):
    """The perplexity still falls, chrF does not: after two epochs without a better one, the run ends."""
    scores = iter([3.0, 9.0, 8.0, 8.5, 9.9])
    monkeypatch.setattr(
        TranslationScores, "scores", lambda self: {"bleu": 1.0, "chrf": next(scores)}
    )
    config = dataclasses.replace(
        BEST, best_by="chrf", final_model="average", bleu_every=1, patience=2
    )
    report = train(files, tmp_path / "run", 99, config)
    training = report["training"]
    assert training["updates"] == 24 and training["patience_is_over"]
    assert training["best_checkpoint"] == {
        "by": "chrf", "name": "update-00000012", "value": 9.0, "is_final": False
    }  # fmt: skip
    systems = list(report["evaluation"]["systems"])
    assert systems[0].startswith("best by chrf") and systems[-1].startswith("last checkpoint")
    said = "".join(capsys.readouterr())
    assert "chrf of the validation set has not risen above 9.000 for 2 epochs" in said
    assert "The validation chrF did not improve for 2 epochs." in said


def test_a_mixture_in_stages_goes_on_exactly(tmp_path, capsys, refused_by):
    """Stopped within an epoch of the second stage; finished, it is the run in one go."""
    words = []
    for name, first, count in (("clean", 0, 40), ("web", 40, 70)):
        words += [name, *map(str, write_files(tmp_path, name, first, count))]
    mixture = ["--parts", *words, "--mix", "clean:3", "web:1", "until:5", "clean:1", "web:2"]

    def start(more, folder, steps=15, config=TINY):
        arguments = [*mixture, "--steps", str(steps), *more, "--output-dir", str(folder)]
        return run("Trains.", arguments=arguments, recipes={"files": config})

    folders = tmp_path / "stopped", tmp_path / "whole"
    assert stopped((), folders[0], signal.SIGINT, 7, 15, start=start) == 130
    start((), folders[0])
    with training_alone():
        start((), folders[1])
    assert same_state(*folders, 15)
    assert read_json(folders[0] / "config.json")["mixture"] == mixture[8:]
    batches = FinishedRun(folders[0]).batches
    assert isinstance(batches, MixedBatches) and len(batches) > 4
    firsts = [batches.pairs(*divmod(update, len(batches))).max() for update in range(15)]
    is_web = [first >= batches.store.starts[1] for first in firsts]
    assert sum(is_web[5:]) in (6, 7) and {*is_web} == {False, True}
    capsys.readouterr()
    start(("--plan", "--plan-no-try"), tmp_path / "none")
    shown = capsys.readouterr().out
    assert "updates 1 to 5: clean 75.0%, web 25.0%" in shown
    assert "updates 6 to the end: clean 33.3%, web 66.7%" in shown
    assert "mixture: [" in refused_by(start, ("--mix", "clean:1", "web:1"), folders[1])
    wrong = ("--mix", "clean:1", "wbe:1")
    assert "Did you mean 'web'?" in refused_by(start, wrong, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_moving_average_goes_on_exactly_and_is_the_result(files, tmp_path, capsys, refused_by):
    config = dataclasses.replace(TINY, ema=0.9, attention_log=False)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    assert stopped(files, folder, signal.SIGINT, 9, 12, config) == 130
    report = train(files, folder, 12, config)
    history = train_alone(files, whole, 12, config)
    assert same_state(folder, whole, 12)
    pairs = zip(report["training"]["history"], history, strict=True)
    assert all(a["val_perplexity"] == b["val_perplexity"] for a, b in pairs)

    # What was validated and saved is the average in the checkpoint.
    last = folder / "checkpoints" / "update-00000012"
    finished = FinishedRun(folder)
    load_moving_average(finished.model, [last])
    wanted = PerplexityMeter(finished.model)(finished.validation)
    assert history[-1]["val_perplexity"] == pytest.approx(wanted, rel=1e-5)
    assert report["validation_perplexity"] == pytest.approx(wanted, rel=1e-5)
    assert abs(report["last_validation_perplexity"] - wanted) > 1e-3 * wanted
    models = [keras.saving.load_model(folder / "model.keras", compile=False), finished.model]
    models += [checkpoint_translator(folder, name).model for name in ("average", "last")]
    weights = [[keras.ops.convert_to_numpy(v) for v in m.trainable_weights] for m in models]
    for other in weights[1:3]:
        assert all(map(np.array_equal, weights[0], other))
    assert not all(map(np.array_equal, weights[0], weights[3]))
    assert list(report["evaluation"]["systems"]) == [
        "last checkpoint (update-00000012)", "moving average (update-00000012)"
    ]  # fmt: skip
    assert (
        "The moving average of the weights in update-00000012."
        in (folder / "report.txt").read_text()
    )
    assert ", the moving average of the weights" in capsys.readouterr().out
    assert list(finished.evaluation(Sentences(["a b"], ["c d"]))["systems"])[-1].startswith(
        "moving average"
    )
    assert "ema: 0.9 there, None asked for" in refused_by(train, files, folder, 12, TINY)
