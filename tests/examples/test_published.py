"""The published numbers against arithmetic: hours times FLOP/s, and parameters counted by hand."""

import math

import constituency_parsing
import pytest
import table1_layer_complexity
import weighted_ablation
import weighted_transformer
from table2_training_cost import BIG_EN_FR_BLEU_IN_TEXT, SUSTAINED_FLOPS, TABLE_2, TRAINING
from table3_variations import TABLE_3, parameter_counts

from keras_attention.models import PRESETS

pytestmark = pytest.mark.backends("tensorflow")

BASE = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64}
# What 40,960 entries in the vocabulary, biases of the attention and a table of 32 target spaces make of
# a model: the authors' code, with which the sizes in Table 3 agree.
PADDED_VOCABULARY, TARGET_SPACES = 40_960, 32


def symbols(change):
    """The paper's symbols of a row, base's where it is blank."""
    pairs = (item.split("=") for item in change.split(", ") if "=" in item)
    changed = {name: float(value) for name, value in pairs}
    row = BASE | {name: int(value) for name, value in changed.items() if name in BASE}
    if "h" in changed and "d_k" not in changed:  # big: the width is shared by the heads
        row |= {"d_k": row["d_model"] // row["h"], "d_v": row["d_model"] // row["h"]}
    return row, changed


def parameters(row, vocabulary_size, use_attention_bias=False, target_spaces=0):
    """Weights of one tied table, three attentions, two feed-forward networks and five norms a layer."""
    d, dff = row["d_model"], row["d_ff"]
    keys, values = row["h"] * row["d_k"], row["h"] * row["d_v"]
    attention = d * keys + d * keys + d * values + values * d
    if use_attention_bias:
        attention += keys + keys + values + d
    feed_forward = d * dff + dff + dff * d + d
    layer = 3 * attention + 2 * feed_forward + 5 * 2 * d
    return (vocabulary_size + target_spaces) * d + row["N"] * layer


@pytest.mark.parametrize("name", TABLE_3)
def test_a_row_of_table_3_is_its_preset(name):
    variation = TABLE_3[name]
    row, changed = symbols(variation.change)
    arguments = PRESETS[variation.preset]
    wanted = {
        "num_layers": "N",
        "hidden_dim": "d_model",
        "intermediate_dim": "d_ff",
        "num_heads": "h",
    }
    assert {name: arguments[name] for name in wanted} == {n: row[s] for n, s in wanted.items()}
    key_dim = arguments.get("key_dim") or row["d_model"] // row["h"]
    assert (key_dim, arguments.get("value_dim") or key_dim) == (row["d_k"], row["d_v"])
    assert arguments["dropout"] == changed.get("P_drop", 0.1)
    assert variation.label_smoothing == changed.get("epsilon_ls", 0.1)
    assert ("learned" in variation.change) == (arguments.get("position_layout") == "learned")
    learned = 2 * 256 * 512 if name == "e_learned_positions" else 0
    assert parameter_counts()[name]["paper"] == parameters(row, 37_000) + learned


def test_the_sizes_in_table_3_are_those_of_the_authors_code():
    counts = parameter_counts()
    assert counts["base"] == {"paper": 63_045_632, "authors": 65_126_400}
    printed = {n: v for n, v in TABLE_3.items() if v.parameters and n != "big"}
    assert len(printed) == 10
    for name, variation in printed.items():
        row, _ = symbols(variation.change)
        count = parameters(row, PADDED_VOCABULARY, True, TARGET_SPACES)
        assert round(count / 1e6) == variation.parameters, name
        assert count == counts[name]["authors"]


def test_the_big_model_does_not_have_the_padded_vocabulary():
    """Its 213 million agree with the 37,000 entries of the text to 1 %, not with 40,960."""
    row, _ = symbols(TABLE_3["big"].change)
    assert math.isclose(parameters(row, 37_000), 213e6, rel_tol=0.01)
    assert round(parameters(row, PADDED_VOCABULARY, True, TARGET_SPACES) / 1e6) != 213


@pytest.mark.parametrize(
    "model, name", [("base", "Transformer (base model)"), ("big", "Transformer (big)")]
)
def test_training_costs_of_table_2_are_time_times_devices_times_flops(model, name):
    training = TRAINING[model]
    (row,) = (row for row in TABLE_2 if row.name == name)
    flops = training.hours * 3600 * training.devices * SUSTAINED_FLOPS[training.device]
    assert f"{flops:.1e}" == f"{row.flops_en_de:.1e}" == f"{row.flops_en_fr:.1e}"
    # The hours that the text gives are those of its steps, to a tenth.
    hours = training.updates * training.seconds_per_update / 3600
    assert math.isclose(hours, training.hours, rel_tol=0.1)


def test_the_transformers_are_the_best_single_models_of_table_2():
    *others, base, big = (row for row in TABLE_2 if "Ensemble" not in row.name)
    assert base.bleu_en_de > max(row.bleu_en_de for row in others if row.bleu_en_de)
    # "More than 2.0 BLEU" over all that came before, ensembles included (section 6.1).
    rows = [row for row in TABLE_2 if "Transformer" not in row.name]
    assert big.bleu_en_de - max(row.bleu_en_de for row in rows if row.bleu_en_de) > 2.0
    assert big.bleu_en_fr > BIG_EN_FR_BLEU_IN_TEXT > base.bleu_en_fr


def test_the_expected_exponents_are_those_printed_in_table_1():
    for one in table1_layer_complexity.all_series(16_384):
        row, _ = table1_layer_complexity.LAYER_TYPES[one.kind]
        factors = row.complexity.removeprefix("O(").removesuffix(")").split()
        powers = {f[0]: int(f[2:]) if "^" in f else 1 for f in factors}
        assert one.expected == powers[one.axis], one.name


def test_the_parser_of_table_4_comes_second_on_the_wsj_alone():
    """ "Better than all but the recurrent neural network grammar" (section 6.3)."""
    scores = {
        row.name: row.f1 for row in constituency_parsing.TABLE_4 if row.training == "WSJ only"
    }
    best, second, *_ = sorted(scores, key=scores.__getitem__, reverse=True)
    assert best.startswith("Dyer") and second.startswith("Transformer")


def test_the_weighted_tables_stand_on_the_paper():
    """Its baselines are the paper's own numbers: Tables 2 and 3."""
    by_layers = {"layers_2": "c_layers_2", "layers_4": "c_layers_4", "layers_6": "base",
                 "layers_8": "c_layers_8", "large": "big"}  # fmt: skip
    for name, row in weighted_transformer.TABLE_2.items():
        paper = TABLE_3[by_layers[name]]
        assert row.transformer_bleu == paper.bleu
        assert row.transformer_updates == paper.updates
        assert row.weighted_bleu > row.transformer_bleu
        assert row.weighted_updates < row.transformer_updates
    small, _, large, _ = weighted_transformer.TABLE_1
    base, big = TABLE_2[-2:]
    assert (small.bleu_en_de, small.bleu_en_fr) == (base.bleu_en_de, base.bleu_en_fr)
    assert large.bleu_en_fr == BIG_EN_FR_BLEU_IN_TEXT and large.bleu_en_de == big.bleu_en_de
    assert (
        weighted_ablation.TABLE_3["learned"]
        == weighted_transformer.TABLE_2["layers_2"].weighted_bleu
    )
