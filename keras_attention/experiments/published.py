"""The published numbers, as data; our runs are compared with them.

* "The paper": Vaswani et al. 2017, "Attention Is All You Need", Tables 1 to 4 and sections 5 and 6.
* "Weighted": Ahmed, Keskar, Socher 2017, "Weighted Transformer Network for Machine Translation",
  Tables 1 to 3 and section 4.

None stands for a blank cell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


@dataclasses.dataclass(frozen=True)
class LayerType:
    """A row of the paper's Table 1. n: sequence length, d: width, k: kernel, r: neighbourhood.

    Attributes:
        name: Layer type.
        complexity: Operations of a layer, as printed.
        sequential_operations: Operations that must follow one another, as printed.
        maximum_path_length: Layers between the two farthest positions, as printed.
        exponents: The power of each symbol in `complexity`: the slope of time in a log-log picture.
    """

    name: str
    complexity: str
    sequential_operations: str
    maximum_path_length: str
    exponents: Mapping[str, int]


def _layer(name: str, operations: str, sequential: str, path: str, **exponents: int) -> LayerType:
    return LayerType(name, operations, sequential, path, MappingProxyType(exponents))


TABLE_1: Mapping[str, LayerType] = MappingProxyType(
    {
        "self_attention": _layer("Self-Attention", "O(n^2 d)", "O(1)", "O(1)", n=2, d=1),
        "recurrent": _layer("Recurrent", "O(n d^2)", "O(n)", "O(n)", n=1, d=2),
        "convolutional": _layer(
            "Convolutional", "O(k n d^2)", "O(1)", "O(log_k(n))", k=1, n=1, d=2
        ),
        "restricted_self_attention": _layer(
            "Self-Attention (restricted)", "O(r n d)", "O(1)", "O(n/r)", r=1, n=1, d=1
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Translation:
    """A row of the paper's Table 2: newstest2014.

    Attributes:
        name: The model.
        bleu_en_de, bleu_en_fr: BLEU; tokenised, cased, of newstest2014.
        flops_en_de, flops_en_fr: Training cost; of the Transformers one figure stands for both.
    """

    name: str
    bleu_en_de: float | None = None
    bleu_en_fr: float | None = None
    flops_en_de: float | None = None
    flops_en_fr: float | None = None


TABLE_2 = (
    Translation("ByteNet", 23.75),
    Translation("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Translation("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Translation("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Translation("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Translation("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20),
    Translation("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Translation("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Translation("Transformer (base model)", 27.3, 38.1, 3.3e18, 3.3e18),
    Translation("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
)
# The table says 41.8; section 6.1 says 41.0, and the abstract one or the other by version.
BIG_EN_FR_BLEU_IN_TEXT = 41.0


@dataclasses.dataclass(frozen=True)
class Training:
    """What training took: sections 5.2 and 5.3.

    Attributes:
        updates: Training steps.
        seconds_per_update: Of a step.
        hours: Of the whole training.
        devices, device: How many of which GPU. `evaluation.cost.SUSTAINED_FLOPS` has its FLOP/s.
    """

    updates: int
    seconds_per_update: float
    hours: float
    devices: int = 8
    device: str = "P100"


TRAINING = MappingProxyType(
    {"base": Training(100_000, 0.4, 12.0), "big": Training(300_000, 1.0, 3.5 * 24)}
)


@dataclasses.dataclass(frozen=True)
class Variation:
    """A row of the paper's Table 3: English-German, newstest2013.

    Attributes:
        group: `"A"` to `"E"`, `"base"` or `"big"`.
        preset: The model's name in `keras_attention.PRESETS`.
        perplexity: Per word-piece.
        bleu: Tokenised, cased.
        change: What differs from "base", in the paper's symbols.
        parameters: In millions, where the table says so.
        label_smoothing: The paper's epsilon_ls.
        updates: Training steps.
    """

    group: str
    preset: str
    perplexity: float
    bleu: float
    change: str
    parameters: int | None = None
    label_smoothing: float = 0.1
    updates: int = 100_000


TABLE_3: Mapping[str, Variation] = MappingProxyType(
    {
        "base": Variation("base", "base", 4.92, 25.8, "", 65),
        "a_heads_1": Variation("A", "table3_a_heads_1", 5.29, 24.9, "h=1, d_k=512, d_v=512"),
        "a_heads_4": Variation("A", "table3_a_heads_4", 5.00, 25.5, "h=4, d_k=128, d_v=128"),
        "a_heads_16": Variation("A", "table3_a_heads_16", 4.91, 25.8, "h=16, d_k=32, d_v=32"),
        "a_heads_32": Variation("A", "table3_a_heads_32", 5.01, 25.4, "h=32, d_k=16, d_v=16"),
        "b_key_dim_16": Variation("B", "table3_b_key_dim_16", 5.16, 25.1, "d_k=16", 58),
        "b_key_dim_32": Variation("B", "table3_b_key_dim_32", 5.01, 25.4, "d_k=32", 60),
        "c_layers_2": Variation("C", "table3_c_layers_2", 6.11, 23.7, "N=2", 36),
        "c_layers_4": Variation("C", "table3_c_layers_4", 5.19, 25.3, "N=4", 50),
        "c_layers_8": Variation("C", "table3_c_layers_8", 4.88, 25.5, "N=8", 80),
        "c_hidden_256": Variation(
            "C", "table3_c_hidden_256", 5.75, 24.5, "d_model=256, d_k=32, d_v=32", 28
        ),
        "c_hidden_1024": Variation(
            "C", "table3_c_hidden_1024", 4.66, 26.0, "d_model=1024, d_k=128, d_v=128", 168
        ),
        "c_intermediate_1024": Variation(
            "C", "table3_c_intermediate_1024", 5.12, 25.4, "d_ff=1024", 53
        ),
        "c_intermediate_4096": Variation(
            "C", "table3_c_intermediate_4096", 4.75, 26.2, "d_ff=4096", 90
        ),
        "d_dropout_0": Variation("D", "table3_d_dropout_0", 5.77, 24.6, "P_drop=0.0"),
        "d_dropout_2": Variation("D", "table3_d_dropout_2", 4.95, 25.5, "P_drop=0.2"),
        "d_smoothing_0": Variation(
            "D", "base", 4.67, 25.3, "epsilon_ls=0.0", label_smoothing=0.0
        ),
        "d_smoothing_2": Variation(
            "D", "base", 5.47, 25.7, "epsilon_ls=0.2", label_smoothing=0.2
        ),
        "e_learned_positions": Variation(
            "E", "table3_e_learned_positions", 4.92, 25.7, "learned positions"
        ),
        "big": Variation(
            "big", "big", 4.33, 26.4, "d_model=1024, d_ff=4096, h=16, P_drop=0.3", 213,
            updates=300_000,
        ),
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class AttentionPicture:
    """A picture of the appendix that shows what one word reads: its weights, taken from the opacities.

    Encoder self-attention, layer 5 of 6. The paper's pictures also have padding after the sentence.

    Attributes:
        sentence: The sentence, spaces between its tokens.
        query: The word that reads.
        num_heads: Heads of the layer.
        weights: For each head in the picture (from 1), the weights of the words that are drawn.
    """

    sentence: str
    query: str
    num_heads: int
    weights: Mapping[int, Mapping[str, float]]

    @property
    def tokens(self) -> list[str]:
        """The words of the sentence."""
        return self.sentence.split()


FIGURE_3 = AttentionPicture(
    "It is in this spirit that a majority of American governments have passed new laws since 2009 "
    "making the registration or voting process more difficult . <EOS>",
    "making",
    8,
    {
        1: {"more": 0.525, "difficult": 0.455},
        2: {"making": 0.067, "more": 0.863, "difficult": 0.063},
        3: {"more": 0.376, "difficult": 0.600},
        4: {"more": 0.161, "difficult": 0.835},
        5: {"making": 0.557, "more": 0.035, "difficult": 0.169, "<EOS>": 0.196},
        6: {"difficult": 0.980},
        7: {"laws": 0.086, "2009": 0.533, "making": 0.145, ".": 0.055, "<EOS>": 0.106},
        8: {"making": 0.020, "more": 0.812, "difficult": 0.161},
    },
)
FIGURE_4 = AttentionPicture(
    "The Law will never be perfect , but its application should be just - this is what we are "
    "missing , in my opinion . <EOS>",
    "its",
    8,
    {
        5: {"Law": 0.914, "application": 0.035},
        6: {"The": 0.020, "Law": 0.412, "application": 0.502},
    },
)


@dataclasses.dataclass(frozen=True)
class Parser:
    """A row of the paper's Table 4: English constituency parsing, section 23 of the WSJ.

    Attributes:
        name: The parser.
        training: `"WSJ only"` (discriminative), `"semi-supervised"`, `"multi-task"` or
            `"generative"`.
        f1: Labelled bracketing F1, in percent.
    """

    name: str
    training: str
    f1: float


TABLE_4 = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    Parser("Petrov et al. (2006)", "WSJ only", 90.4),
    Parser("Zhu et al. (2013)", "WSJ only", 90.4),
    Parser("Dyer et al. (2016)", "WSJ only", 91.7),
    Parser("Transformer (4 layers)", "WSJ only", 91.3),
    Parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parser("Transformer (4 layers)", "semi-supervised", 92.7),
    Parser("Luong et al. (2015)", "multi-task", 93.0),
    Parser("Dyer et al. (2016)", "generative", 93.3),
)
# Section 6.3: the parser's model and search; all else as the English-German base model.
PARSING: Mapping[str, Any] = MappingProxyType(
    {
        "num_layers": 4,
        "hidden_dim": 1024,
        "beam_size": 21,
        "length_penalty": 0.3,
        "max_extra_length": 300,
        "vocabulary_size": 16_000,
        "semi_supervised_vocabulary_size": 32_000,
    }
)


@dataclasses.dataclass(frozen=True)
class WeightedTranslation:
    """A row of Weighted's Table 1: newstest2014, parameters from its Table 2.

    Attributes:
        name: The model.
        bleu_en_de, bleu_en_fr: BLEU.
        updates: Training steps.
        parameters: In millions.
    """

    name: str
    bleu_en_de: float
    bleu_en_fr: float
    updates: int
    parameters: int


WEIGHTED_TABLE_1 = (
    WeightedTranslation("Transformer (small)", 27.3, 38.1, 100_000, 65),
    WeightedTranslation("Weighted Transformer (small)", 28.4, 38.9, 60_000, 65),
    WeightedTranslation("Transformer (large)", 28.4, 41.0, 300_000, 213),
    WeightedTranslation("Weighted Transformer (large)", 28.9, 41.4, 250_000, 213),
)


@dataclasses.dataclass(frozen=True)
class WeightedVariation:
    """A row of Weighted's Table 2: English-German, newstest2013; M branches in place of h heads.

    Attributes:
        num_layers: N.
        num_branches: M.
        dropout: P_drop.
        transformer_bleu, weighted_bleu: BLEU of either model.
        transformer_updates, weighted_updates: Training steps of either model.
    """

    num_layers: int
    num_branches: int
    dropout: float
    transformer_bleu: float
    weighted_bleu: float
    transformer_updates: int = 100_000
    weighted_updates: int = 60_000


WEIGHTED_TABLE_2: Mapping[str, WeightedVariation] = MappingProxyType(
    {
        "layers_2": WeightedVariation(2, 8, 0.1, 23.7, 24.8),
        "layers_4": WeightedVariation(4, 8, 0.1, 25.3, 26.2),
        "layers_6": WeightedVariation(6, 8, 0.1, 25.8, 26.5),
        "layers_8": WeightedVariation(8, 8, 0.3, 25.5, 25.6),
        "large": WeightedVariation(6, 16, 0.3, 26.4, 27.2, 300_000, 250_000),
    }
)
# Weighted's Table 3, two layers: BLEU with the learned weights, and with others put in their place.
WEIGHTED_TABLE_3 = MappingProxyType({"learned": 24.8, "random": 21.1, "uniform": 23.4})
