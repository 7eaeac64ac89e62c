"""The arguments that layers and models share: one check for each name."""

from collections.abc import Mapping
from typing import Any

from keras_attention.spec.parts import (
    BRANCH_FEED_FORWARDS,
    BRANCHED_DECODERS,
    DECODER_CELLS,
    LAYOUTS,
)
from keras_attention.utils.checks import (
    check_boolean,
    check_choice,
    check_depths,
    check_integer,
    check_number,
)

SIZES = {
    *("vocabulary_size", "hidden_dim", "intermediate_dim", "num_heads", "max_length"),
    *("key_dim", "value_dim", "sliding_window", "attention_window", "target_vocabulary_size"),
}
RATES = {"dropout", "attention_dropout", "activation_dropout"}
SWITCHES = {
    *("normalize_first", "use_attention_bias", "tie_weights", "recompute", "use_bias"),
    *("use_logits_bias", "final_normalization"),
}
EPSILONS = {"epsilon", "layer_norm_epsilon"}
CHOICES = {
    "branch_feed_forward": BRANCH_FEED_FORWARDS,
    "branched_decoder": BRANCHED_DECODERS,
    "decoder_cell": DECODER_CELLS,
    "layout": LAYOUTS,
    "position_layout": LAYOUTS,
}
# Which may be None.
OPTIONAL = {
    *("key_dim", "value_dim", "sliding_window", "attention_window"),
    *("branch_feed_forward", "seed", "target_vocabulary_size", "final_normalization"),
}


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are known by name; raise a ValueError if one of them is wrong.

    >>> checked({"self": 3, "num_heads": 8, "key_dim": None, "dropout": 0})
    {'num_heads': 8, 'key_dim': None, 'dropout': 0.0}
    """
    known: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None and name in OPTIONAL:
            known[name] = None
        elif name == "num_layers":
            known[name] = check_depths(name, value)
        elif name in SIZES:
            known[name] = check_integer(name, value, least=1)
        elif name in RATES:
            known[name] = check_number(name, value, least=0, below=1)
        elif name in SWITCHES:
            known[name] = check_boolean(name, value)
        elif name in EPSILONS:
            known[name] = check_number(name, value, above=0)
        elif name in CHOICES:
            known[name] = check_choice(name, value, CHOICES[name])
        elif name == "seed":
            known[name] = check_integer(name, value, least=0)
    return known
