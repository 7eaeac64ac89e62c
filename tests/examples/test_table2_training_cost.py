"""Table 2's costs: the printed numbers, the parts, and a run's."""

import pytest
from table2_training_cost import Training, cost_table, main, paper_costs, paper_flops, parser

from keras_attention.evaluation import transformer_flops
from keras_attention.models import PRESETS
from keras_attention.utils.files import write_json

pytestmark = pytest.mark.backends("tensorflow")


def test_the_papers_column_comes_out():
    costs = paper_costs()
    assert {name: f"{cost['formula']:.1e}" for name, cost in costs.items()} == {
        "base": "3.3e+18",
        "big": "2.3e+19",
    }
    for cost in costs.values():
        assert f"{cost['formula']:.1e}" == f"{cost['printed']:.1e}"
        assert sum(cost["parts"].values()) == cost["counted"] < cost["formula"]


def test_the_papers_formula():
    known = [Training(1, 1.0, 1.0, *own) for own in ((3, "K80"), (1, "K40"), (1, "M40"))]
    assert [paper_flops(one, 10) for one in known] == pytest.approx([8.4e13, 3.7e13, 6e13])


def test_the_table_has_both_languages():
    rows = {row[0]: row for row in cost_table(paper_costs()).rows}
    assert rows["Transformer (big)"][1:5] == [28.4, 41.8, "2.3e19", "2.3e19"]
    assert rows["GNMT + RL"][1:5] == [24.6, 39.92, "2.3e19", "1.4e20"]
    assert rows["ByteNet"][1:5] == [23.75, None, None, None]
    assert rows["Deep-Att + PosUnk"][1:5] == [None, 39.2, None, "1.0e20"]


def test_a_run_stands_beside_the_paper(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    settings = {"train_fingerprint": "ab", "preset": "tiny", "model_arguments": {"num_layers": 1}}
    write_json(run / "config.json", settings)
    options = parser().parse_args(["--run", str(run)])
    with pytest.raises(ValueError, match="--run: .* is not finished"):
        main(options, tmp_path / "early")
    assert not (tmp_path / "early").exists()
    cost = {
        "updates": 3,
        "flops": 4e12,
        "flops_of_tokens": 3e12,
        "seconds": 40.0,
        "peak": 2e11,
        "mfu": 0.5,
    }
    report = {
        "vocabulary_size": 50,
        "batches": {"pairs": 10, "source_tokens": 71, "target_tokens": 92},
        "evaluation": {"training_cost": cost},
    }
    write_json(run / "report.json", report)
    result = main(options, tmp_path / "out")
    sizes = {**PRESETS["tiny"], "num_layers": 1, "vocabulary_size": 50}
    assert sum(result["run"]["parts"].values()) == transformer_flops(sizes, 7, 9)
    text = (tmp_path / "out" / "table2.txt").read_text()
    assert "3.2832e18" in text and "8.00e+12" in text
