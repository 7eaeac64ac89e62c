"""How a small epsilon becomes PyTorch's: by a residual stream that is larger by a power of two."""

import math
import re

import numpy as np

EPSILON = 1e-5  # PyTorch's; Marian's models of transformers have no other.
# Largest factor of a residual stream: an epsilon below EPSILON / 1024**2 is that one.
LARGEST_FACTOR = 1024


def residual_factor(epsilon: float) -> int:
    """Return the factor of the residual stream with which `EPSILON` does what `epsilon` does without it.

    Normalisation of x with epsilon is that of `f x` with `f**2 epsilon`. The factor is a power of two, which
    changes no bit of a mantissa, so that what was multiplied comes back as it was. So `EPSILON / f**2` is the
    epsilon up to a factor of 2, or more for one below `EPSILON / LARGEST_FACTOR**2`.
    """
    ratio = EPSILON / max(epsilon, EPSILON / LARGEST_FACTOR**2)
    return int(2 ** round(math.log2(ratio) / 2))


class ResidualPowers:
    """Says how weights change when the residual stream of a model is multiplied by a factor.

    With normalisations after sub-layers, the stream grows at the first of them, and keeps its size before it
    and behind the last. So tables and positions stay, which transformers computes again for a model that it
    saves; the first normalisation has `EPSILON`, beside the variance of whole embeddings. With normalisations
    before sub-layers (`is_pre_norm`) the stream is larger from its beginning.
    """

    def __init__(self, decoder_layers: int, is_tied: bool, is_pre_norm: bool) -> None:
        to_stream = r".*(out_proj|fc2)\.(weight|bias)"
        if is_pre_norm:  # Sub-layers read what a normalisation wrote.
            # A tied table is multiplied, so the last normalisation before it is divided.
            last = r"model\.decoder\.layer_norm\..*", -1 if is_tied else 0
            tables = r".*(embed_tokens|shared|embed_positions)\.weight"
            self._patterns = [last, (tables, 1), (to_stream, 1)]
        else:
            first = r"model\.(encoder|decoder)\.layers\.0\.self_attn\..*"
            last = rf"model\.decoder\.layers\.{decoder_layers - 1}\.final_layer_norm\..*", 0
            norms = r".*_layer_norm\..*"
            from_stream = r".*(q_proj|k_proj|v_proj|fc1)\.weight"
            self._patterns = [(first, 0), last, (norms, 1), (from_stream, -1), (to_stream, 1)]

    def scaled(self, name: str, weight: np.ndarray, factor: float) -> np.ndarray:
        """Return what becomes of a weight."""
        powers = (power for pattern, power in self._patterns if re.fullmatch(pattern, name))
        return weight * np.float32(factor ** next(powers, 0))
