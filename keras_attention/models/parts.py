"""Makes and builds the layers of a `Transformer` from its options."""

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_attention.layers.decoder_block import TransformerDecoderBlock
from keras_attention.layers.door import check_index
from keras_attention.layers.dropout import Dropout
from keras_attention.layers.embedding import TokenEmbedding
from keras_attention.layers.encoder_block import TransformerEncoderBlock
from keras_attention.layers.positional_encoding import PositionalEncoding
from keras_attention.layers.residual import make_norm
from keras_attention.layers.seeds import part_seed
from keras_attention.layers.ssru import SSRU
from keras_attention.ops.dispatch import backend_choice
from keras_attention.spec.options import BlockOptions, DecoderBlockOptions
from keras_attention.utils.checks import check_numbers, depths_of

BLOCKS: dict[str, type[keras.layers.Layer]] = {
    "encoder": TransformerEncoderBlock,
    "decoder": TransformerDecoderBlock,
}


class Parts:
    """Makes the layers of one model. Each gets its own seed, so the order of the calls matters."""

    def __init__(self, options: Any, hidden_dim: int, dtype: Any):  # `StackOptions`, dtype policy
        _check_has_float64(dtype)
        self.options = options
        self.hidden_dim, self.dtype = hidden_dim, dtype
        self.sequence_shape = (None, None, hidden_dim)
        self._seed = options.seed

    def next_seed(self) -> int | None:
        """Return another seed at each call, or None if the model has no seed."""
        if self._seed is not None:
            self._seed += 1
        return self._seed

    def table(
        self,
        name: str,
        vocabulary_size: int,
        tie_weights: bool = True,
        use_logits_bias: bool = False,
    ) -> TokenEmbedding:
        """Make the table of a vocabulary."""
        layer = TokenEmbedding(
            vocabulary_size,
            self.hidden_dim,
            pad_token_id=self.options.pad_token_id,
            tie_weights=tie_weights,
            use_logits_bias=use_logits_bias,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=self.hidden_dim**-0.5, seed=self.next_seed()
            ),
            name=name,
            dtype=self.dtype,
        )
        layer.build((None, None))
        return layer

    def output_table(self, name: str, vocabulary_size: int) -> TokenEmbedding:
        """Make the table for target and softmax."""
        options = self.options
        return self.table(name, vocabulary_size, options.tie_weights, options.use_logits_bias)

    def positions(self, kind: str) -> tuple[PositionalEncoding, Dropout]:
        """Make the positional encoding of a stack, and the dropout after it."""
        name = f"{kind}_positions"
        positions = PositionalEncoding(
            self.options.position_layout,
            self.options.max_length,
            keras.initializers.GlorotUniform(part_seed(self._seed, name)),
            name=name,
            dtype=self.dtype,
        )
        positions.build(self.sequence_shape)
        dropout = Dropout(
            self.options.dropout, seed=self.next_seed(), name=f"{kind}_dropout", dtype=self.dtype
        )
        dropout.build(self.sequence_shape)
        return positions, dropout

    def stack(self, kind: str, make_block: Callable[..., Any] | None = None) -> list[Any]:
        """Return the blocks of the encoder or the decoder, made by `make_block` if it is given."""
        is_encoder = kind == "encoder"
        fields = dataclasses.fields(BlockOptions if is_encoder else DecoderBlockOptions)
        arguments = {field.name: getattr(self.options, field.name) for field in fields}
        if arguments.get("decoder_cell") == "ssru":
            arguments["attention_window"] = None
        blocks = []
        for index in range(depths_of(self.options.num_layers)[0 if is_encoder else 1]):
            initializer = keras.initializers.GlorotUniform(self.next_seed())
            own = {"kernel_initializer": initializer, "seed": self.next_seed()}
            own |= {"name": f"{kind}_block_{index + 1}", "dtype": self.dtype}
            layer = (make_block or BLOCKS[kind])(**{**arguments, **own})
            layer.build(self.sequence_shape)
            blocks.append(layer)
        return blocks

    def normalization(self, name: str) -> Any:
        """Return a normalisation of a stack, beside those of its blocks."""
        layer = make_norm(
            self.options.normalization,
            epsilon=self.options.layer_norm_epsilon,
            dtype=self.dtype,
            name=name,
        )
        layer.build(self.sequence_shape)
        return layer


def check_memory(blocks: list[Any], memory: Any, rows: Any) -> None:
    """Refuse what `encode` did not return, or for other sentences than (B, W) tokens have."""
    states = memory.get("blocks", ()) if isinstance(memory, Mapping) else ()
    if len(states) != len(blocks) or "padding_mask" not in memory:
        raise ValueError(
            f"`memory` must be what `encode` returned. Received: {reprlib.repr(memory)}"
        )
    check_numbers("memory['padding_mask']", memory["padding_mask"], "BS", B=rows and rows[0])


def check_cache(blocks: list[Any], cache: Any, rows: Any, start_index: Any) -> None:
    """Refuse what is no cache for (B, W) tokens, or a position, if it is an int, that it has no room for.

    Such a position would overwrite the last one.
    """
    check_index("start_index", start_index)
    if not isinstance(cache, list | tuple) or len(cache) != len(blocks):
        raise ValueError(
            f"`cache` must be a list with a dict for each of {len(blocks)} layers, from `initial_cache` or "
            f"the previous step. Received: {reprlib.repr(cache)}"
        )
    batch_size, beam_size = rows or (None, None)
    for index, (block, kept) in enumerate(zip(blocks, cache, strict=True)):
        is_cell = isinstance(getattr(block, "self_attention", None), SSRU)
        parts = {"state": "BWD"} if is_cell else {"key": "BWLNK", "value": "BWLNU"}
        for part, axes in parts.items():
            state = kept.get(part) if isinstance(kept, Mapping) else kept
            check_numbers(f"cache[{index}][{part!r}]", state, axes, B=batch_size, W=beam_size)
        if is_cell:
            continue  # Its state has room for any number of positions.
        room = kept["key"].shape[2]
        is_known = isinstance(start_index, int) and isinstance(room, int)
        if is_known and not 0 <= start_index < room:
            raise ValueError(
                f"`start_index` must be from 0 to {room - 1}, the last position of the cache. Received: "
                f"start_index={start_index}. Call `initial_cache` with a larger `max_length`."
            )


def _check_has_float64(policy: Any) -> None:
    """Refuse float64 on JAX unless it is switched on there: JAX would compute in float32."""
    if policy.compute_dtype != "float64" or backend_choice("float64", jax=False, default=True):
        return
    import jax

    if not jax.config.jax_enable_x64:
        raise ValueError(
            "JAX makes float32 of float64 unless its 64-bit numbers are switched on. Call "
            'jax.config.update("jax_enable_x64", True) before anything is computed, or set '
            f"JAX_ENABLE_X64=1. Received: dtype={policy.name!r}"
        )
