"""The three kinds of attention beside NumPy's, and a small part of the script."""

import numpy as np
import pytest
import section3_attention_alternatives as script
from keras import ops

pytestmark = pytest.mark.backends("torch")

rng = np.random.default_rng(1)


@pytest.mark.parametrize("kind", script.KINDS)
def test_a_layer_attends_as_its_formula_says(kind):
    batch, targets, sources, heads, key_dim = 2, 3, 5, 4, 6
    layer = script.layer_of(kind, key_dim, heads)
    query, memory = rng.normal(size=(batch, targets, 7)), rng.normal(size=(batch, sources, 9))
    found = ops.convert_to_numpy(layer(query, memory))
    q, k, v, out = (
        ops.convert_to_numpy(getattr(layer, f"{name}_dense").kernel)
        for name in ("query", "key", "value", "output")
    )
    q, k = np.einsum("btd,dnk->btnk", query, q), np.einsum("bsd,dnk->bsnk", memory, k)
    if kind == "additive":
        direction = ops.convert_to_numpy(layer.direction)
        hidden = np.tanh(q[:, :, None] + k[:, None])
        scores = np.einsum("btsnk,nk->bnts", hidden, direction)
    else:
        scores = np.einsum("btnk,bsnk->bnts", q, k)
        scores /= 1 if kind == "unscaled" else key_dim**0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    values = np.einsum("bsd,dnu->bsnu", memory, v)
    expected = np.einsum("bnts,bsnu,nud->btd", weights, values, out)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_variance_of_a_product_is_d_k():
    found = {size: script.scores_of(size) for size in (8, 64, 512)}
    for size, scores in found.items():
        assert scores["variance"] == pytest.approx(size, rel=0.05)
    assert found[512]["scaled"] == pytest.approx(found[8]["scaled"], rel=0.05)
    assert found[512]["unscaled"] < 0.1 < found[512]["scaled"]


def test_a_query_asks_for_a_key_that_is_there():
    (asked, memory), classes = script.examples(20, seed=3)
    keys, marks = np.split(memory, [script.WIDTH], axis=-1)
    nearest = ((asked - keys) ** 2).sum(-1).argmin(-1)
    np.testing.assert_array_equal(marks[np.arange(20), nearest].argmax(-1), classes[:, 0])


def test_a_small_part_of_the_script(tmp_path, capsys):
    options = script.parser().parse_args(["--quick", "--steps", "2"])
    found = script.main(options, tmp_path / "out")
    assert script.main(options, tmp_path / "out") == found  # as it was kept
    assert all(
        0 <= values[0] <= 1 for kinds in found["accuracy"].values() for values in kinds.values()
    )
    assert {path.suffix for path in (tmp_path / "out").iterdir()} >= {".txt", ".md", ".svg", ".png"}
    assert "not resolved" in capsys.readouterr().out
