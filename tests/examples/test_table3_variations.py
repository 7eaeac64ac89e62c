"""Table 3: its counts, its rows, and how runs are compared."""

import dataclasses

import common
import pytest
import table3_variations
from table3_variations import TABLE_3, axis_limit, chosen_rows, row_config

from keras_attention import TranslationConfig
from keras_attention.recipes.prepare import Resolved

pytestmark = pytest.mark.backends("torch")


def test_rows_that_do_not_exist_are_listed():
    assert chosen_rows(["B"]) == ["base", "b_key_dim_16", "b_key_dim_32"]
    assert len(chosen_rows(["A", "B", "C", "D", "E", "big"])) == 20
    with pytest.raises(ValueError, match="no row 'f_rows'.*a_heads_1.*big; its groups: A, B"):
        chosen_rows(["D", "f_rows"])


def start(folder, *arguments):
    options = table3_variations.parser().parse_args([*map(str, arguments)])
    return table3_variations.main(options, folder)


@pytest.mark.parametrize(
    "row, width, depth, same",
    [
        ("C", 8, 3, "c_layers_2 and c_layers_4"),
        ("c_layers_8", 8, 3, "base and c_layers_8"),
        ("B", 64, 1, "b_key_dim_16 and b_key_dim_32"),
    ],
)
def test_rows_that_become_the_same_model_are_refused(row, width, depth, same, tmp_path):
    with pytest.raises(ValueError, match=f"the rows {same} are the same model"):
        start(tmp_path / "out", "--rows", row, "--width", width, "--depth", depth)
    assert list(tmp_path.iterdir()) == []


def test_settings_of_rows():
    base = TranslationConfig(steps=100)
    config = row_config(TABLE_3["b_key_dim_32"], base, width=4, depth=2)
    arguments = {"hidden_dim": 128, "intermediate_dim": 512, "key_dim": 8, "value_dim": 16}
    assert config.model_arguments == {**arguments, "num_layers": 3}
    assert (config.steps, config.label_smoothing) == (100, 0.1)
    assert row_config(TABLE_3["d_smoothing_2"], base, 4, 2).label_smoothing == 0.2
    assert row_config(TABLE_3["big"], base, 4, 2).steps == 300


class _Text(list):
    def fingerprint(self):
        return "ab"


class _Corpus:
    name, target_language = "toy", "de"
    train, test = _Text(), _Text()
    LINES = [f"Der Hund Nummer {number} bellt im Garten." for number in range(12)]

    def references(self, split):
        return self.LINES


def test_rows_are_compared_over_paired_seeds(tmp_path, monkeypatch):
    perplexities = {
        "base": (5.0, 6.0, 5.5),
        "d_dropout_0": (6.0, 7.0, 6.6),  # as in the paper: higher, each time
        "d_dropout_2": (5.2, 5.7, 5.6),  # noise
        "d_smoothing_0": (5.5, 6.6, 6.0),  # against the paper
        "d_smoothing_2": (5.5, 6.6, 6.1),
    }
    bleus = {"d_dropout_0": (29.0, 29.0, 29.0)}  # 1, 2 and 1.5 below base
    trained = []

    def train(corpus, config, folder):
        name, seed = folder.name.rsplit("-", 1)
        assert config.seed == int(seed)
        trained.append(folder.name)
        folder.mkdir(parents=True)
        lines = corpus.LINES if name == "base" else [line[:-9] for line in corpus.LINES]
        (folder / "translations.txt").write_text("\n".join([*lines, ""]))
        return {
            "validation_perplexity": perplexities[name][int(seed) - 1],
            "test": {"bleu": bleus.get(name, (30.0, 31.0, 30.5))[int(seed) - 1]},
            "training": {"updates": 9, "minutes": 0.1},
            "parameters": 11,
        }

    monkeypatch.setattr("keras_attention.recipes.order.train_translation", train)
    monkeypatch.setattr(common, "corpus_of", lambda options: _Corpus())
    monkeypatch.setattr(Resolved, "check", lambda self, text: None)
    # The second call finds everything done; what is logged does not matter.
    for logs in (False, True):
        small = dataclasses.replace(table3_variations.SMALL, attention_log=logs)
        monkeypatch.setattr(table3_variations, "SMALL", small)
        result = start(tmp_path / "out", "--rows", "D")
    with pytest.raises(ValueError, match=r"\(batch_tokens: 768 there, 512 asked for\)"):
        start(tmp_path / "out", "--rows", "D", "--batch-tokens", 512)
    assert len(trained) == 15
    assert trained[:5] == [f"{name}-1" for name in perplexities]
    verdicts = {name: (r["resolved"], r["as_paper"]) for name, r in result.items() if "ratio" in r}
    assert verdicts == {
        "d_dropout_0": (True, True),
        "d_dropout_2": (False, True),
        "d_smoothing_0": (True, False),
        "d_smoothing_2": (True, True),
    }
    ratio = (6.0 / 5.0 * 7.0 / 6.0 * 6.6 / 5.5) ** (1 / 3)
    assert result["d_dropout_0"]["ratio"] == pytest.approx(ratio)
    assert result["d_dropout_0"]["bleu_difference"] == pytest.approx(-1.5)
    half = 4.303 * 0.5 / 3**0.5  # Student's t of two degrees of freedom
    assert result["d_dropout_0"]["bleu_interval"] == pytest.approx([-1.5 - half, -1.5 + half])
    assert result["d_dropout_0"]["bleu_of_one_seed"] < 0 and result["d_dropout_0"]["p_value"] < 0.05
    text = (tmp_path / "out" / "table3.txt").read_text()
    assert "-1.5 (-2.7 to -0.3)" in text
    assert "d_smoothing_0 disagrees with the paper" in text
    assert "not resolved" in text and "63,045,632" in text


def test_one_row_far_off_does_not_hide_the_others():
    ours = [*range(-9, 9), 170.0]
    assert axis_limit(ours, [24.2, -12.0]) == pytest.approx(1.1 * 24.2)
    assert axis_limit([-40.0, 30.0, 20.0], [1.0]) == pytest.approx(1.6 * 30.0)
    assert axis_limit([], []) == 10.0
