"""The diagram of a model names what the model is made of, from the bottom to the top."""

from xml.etree import ElementTree

import pytest

from keras_attention import Transformer
from keras_attention.models.weighted import WeightedTransformer
from keras_attention.spec import SpecError
from keras_attention.visualization import diagram

pytestmark = pytest.mark.backends("torch")


def words(figure, least=0.0, most=1e9):
    """The texts of a figure between two places from left to right, from the bottom."""
    texts = [text for text in figure.axes[0].texts if least <= text.get_position()[0] < most]
    texts.sort(key=lambda text: text.get_position()[1])
    return [text.get_text() for text in texts if text.get_text()]


def test_the_papers_model(tmp_path):
    figure = diagram(
        Transformer(370, num_layers=3, hidden_dim=20, intermediate_dim=30, num_heads=4)
    )
    left, right = words(figure, 0.0, 3.0), words(figure, 4.2)
    start = ["370 × 20", "Embedding", "sinusoids", "Add positions"]
    network = ["30, relu", "Feed-forward", "Add & LayerNorm"]
    heads = "4 heads of 5"
    assert left == ["inputs", *start, heads, "Multi-head attention", "Add & LayerNorm", *network]
    assert right == [
        *("outputs, shifted right", *start, heads, "Masked self-attention", "Add & LayerNorm"),
        *(heads, "Multi-head attention", "Add & LayerNorm", *network),
        *("the embedding's table", "Linear", "370", "Softmax"),
    ]
    assert words(figure).count("3 ×") == 1 and words(figure, -1.0, 0.0) == ["3 ×"]
    figure.savefig(tmp_path / "figure.svg")
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")


def test_other_options_have_other_pictures():
    model = Transformer(
        370, 2, 18, 30, 3, normalize_first=True, target_vocabulary_size=420, tie_weights=False,
        decoder_cell="ssru", position_layout="learned", max_length=40, activation="gelu",
    )  # fmt: skip
    right = words(diagram(model.spec()), 4.2)
    assert right[:4] == ["outputs, shifted right", "420 × 18", "Embedding", "learned"]
    assert right[4] == "Add positions"
    assert right[5:9] == ["LayerNorm", "SSRU", "Recurrent cell", "Add"]
    assert right[9:13] == ["LayerNorm", "3 heads of 6", "Multi-head attention", "Add"]
    assert right[13:17] == ["LayerNorm", "30, gelu", "Feed-forward", "Add"]
    assert right[17:] == ["LayerNorm", "a matrix of its own", "Linear", "420", "Softmax"]


def test_an_attention():
    model = Transformer(37, 1, 20, 30, 4, key_dim=6, value_dim=7)
    assert words(diagram(model, "attention"), 0.0) == [
        *("inputs", "Q, K: 20 to 6, V: to 7, each head", "Linear", "Q Kᵀ", "MatMul"),
        *("1 / √6", "Scale"),
        *("padding; in a decoder later positions", "Mask", "over the keys", "Softmax"),
        *("times V", "MatMul", "4 × 7", "Concat", "28 to 20", "Linear"),
    ]
    assert words(diagram(model, "attention"), -1.0, 0.0) == ["4 heads"]


def test_what_a_spec_cannot_describe_is_named():
    with pytest.raises(SpecError, match="A spec has no branches"):
        diagram(WeightedTransformer(37, 1, hidden_dim=8, intermediate_dim=16, num_heads=2))
