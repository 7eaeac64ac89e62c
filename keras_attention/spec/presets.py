"""Named model sizes, as data: the rows of the paper's Table 3, and our own sizes."""

import copy
import difflib
from typing import Any

# The arguments that are the size of a model; what else a recipe sets is no matter of its size.
SIZES = ("num_layers", "hidden_dim", "intermediate_dim", "num_heads", "key_dim", "value_dim")

# Table 3, "base": what the other rows leave unchanged.
BASE: dict[str, Any] = {
    "num_layers": 6,
    "hidden_dim": 512,
    "intermediate_dim": 2048,
    "num_heads": 8,
    "dropout": 0.1,
}


# Our own sizes, not the paper's. "tiny": the embedded demo corpus on a CPU in minutes.
TINY: dict[str, Any] = {
    "num_layers": 2,
    "hidden_dim": 128,
    "intermediate_dim": 512,
    "num_heads": 4,
    "dropout": 0.1,
}
# Some ten thousand pairs, such as Multi30K. The "Transformer-Tiny" of Wu et al. 2021, "Good for
# Misconceived Reasons", which did better there than larger ones.
SMALL: dict[str, Any] = {**TINY, "num_layers": 4, "intermediate_dim": 256, "dropout": 0.3}

PRESETS: dict[str, dict[str, Any]] = {
    "base": BASE,
    # Table 3, "big", English-German; English-French has dropout 0.1 (section 6.1).
    "big": {**BASE, "hidden_dim": 1024, "intermediate_dim": 4096, "num_heads": 16, "dropout": 0.3},
    "big_en_fr": {**BASE, "hidden_dim": 1024, "intermediate_dim": 4096, "num_heads": 16},
    # Table 3 (A): number of heads, with key and value widths that keep the cost constant.
    "table3_a_heads_1": {**BASE, "num_heads": 1, "key_dim": 512, "value_dim": 512},
    "table3_a_heads_4": {**BASE, "num_heads": 4, "key_dim": 128, "value_dim": 128},
    "table3_a_heads_16": {**BASE, "num_heads": 16, "key_dim": 32, "value_dim": 32},
    "table3_a_heads_32": {**BASE, "num_heads": 32, "key_dim": 16, "value_dim": 16},
    # Table 3 (B): width of the keys; that of the values is unchanged.
    "table3_b_key_dim_16": {**BASE, "key_dim": 16, "value_dim": 64},
    "table3_b_key_dim_32": {**BASE, "key_dim": 32, "value_dim": 64},
    # Table 3 (C): size of the model.
    "table3_c_layers_2": {**BASE, "num_layers": 2},
    "table3_c_layers_4": {**BASE, "num_layers": 4},
    "table3_c_layers_8": {**BASE, "num_layers": 8},
    "table3_c_hidden_256": {**BASE, "hidden_dim": 256, "key_dim": 32, "value_dim": 32},
    "table3_c_hidden_1024": {**BASE, "hidden_dim": 1024, "key_dim": 128, "value_dim": 128},
    "table3_c_intermediate_1024": {**BASE, "intermediate_dim": 1024},
    "table3_c_intermediate_4096": {**BASE, "intermediate_dim": 4096},
    # Table 3 (D): dropout. Label smoothing, its other half, is an argument of the loss.
    "table3_d_dropout_0": {**BASE, "dropout": 0.0},
    "table3_d_dropout_2": {**BASE, "dropout": 0.2},
    # Table 3 (E): learned positions.
    "table3_e_learned_positions": {**BASE, "position_layout": "learned"},
    # Section 6.3, constituency parsing: 4 layers of width 1024. The paper does not say which dropout,
    # "both attention and residual", it chose; the authors' code has 0.2.
    "parsing": {
        **BASE,
        "num_layers": 4,
        "hidden_dim": 1024,
        "dropout": 0.2,
        "attention_dropout": 0.2,
    },
    # A few thousand trees on a CPU.
    "parsing_small": {
        **TINY,
        "num_layers": 4,
        "hidden_dim": 192,
        "intermediate_dim": 768,
        "attention_dropout": 0.1,
    },
    "tiny": TINY,
    "small": SMALL,
    # A few hundred thousand pairs.
    "medium": {**SMALL, "hidden_dim": 256, "intermediate_dim": 1024, "dropout": 0.2},
}

# Trained models that the package has in its folder `presets`.
TRAINED = ("demo_en_de",)


def preset_arguments(name: str) -> dict[str, Any]:
    """Return a copy of the arguments of a preset; the error of another name says which ones are similar."""
    if isinstance(name, str) and name in PRESETS:
        return copy.deepcopy(PRESETS[name])
    raise ValueError(
        f"`preset` must be the name of a model size.{_meant(name)} Received: preset={name!r}. The sizes for "
        "small corpora are tiny, small and medium; base and big are the paper's. "
        f"`sorted(keras_attention.PRESETS)` lists all. Trained: {', '.join(TRAINED)}, folders and handles."
    )


def _meant(name: Any) -> str:
    """Return a space and a sentence on what was meant by this in place of a preset's name; or ""."""
    text = name if isinstance(name, str) else ""
    text = text.lower().replace("-", "_")
    names = [*PRESETS, *TRAINED]
    likely = sorted((known for known in names if len(text) > 2 and text in known), key=len)
    likely += [known for known in names if known in text]
    likely += difflib.get_close_matches(text, names)
    listed = " or ".join(map(repr, [*dict.fromkeys(likely)][:3]))
    return listed and f" Did you mean {listed}?"
