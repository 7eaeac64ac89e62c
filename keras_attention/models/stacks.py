"""How encoder and decoder run their blocks: shared by `Transformer` and by each stack alone."""

from collections.abc import Collection
from typing import Any

import numpy as np
from keras import ops

from keras_attention.layers.arguments import Configured, config_of_before
from keras_attention.layers.door import call_part
from keras_attention.layers.recompute import recomputed_call
from keras_attention.layers.ssru import SSRU, state_dtype
from keras_attention.models.parts import Parts, check_cache, check_memory
from keras_attention.models.token_ids import check_sequences, check_token_ids
from keras_attention.ops.reference import at_least_float32
from keras_attention.spec.options import StackOptions
from keras_attention.spec.transformer import SUPPRESSED
from keras_attention.utils.checks import check_integer, static_shape

Cache = list[dict[str, Any]]
Memory = dict[str, Any]


class Stack(Configured):
    """Mixin: what both stacks do. The names of the layers are those of a `Transformer`."""

    final_normalization: bool
    embedding_normalization: bool
    dropout: float
    recompute: bool

    def _take(self, options: StackOptions) -> None:
        """Make options attributes: of what follows from others, what it is."""
        self.options = options
        self._keep(vars(options))
        self.final_normalization = options.normalize_first or bool(options.final_normalization)
        self.max_length = options.max_length if options.position_layout == "learned" else None

    def _add_normalizations(self, parts: Parts, *kinds: str) -> None:
        """Make the layers of what else is normalised than in blocks, of the encoder, the decoder or both."""
        for kind in kinds:
            for name, is_there in (
                (f"{kind}_normalization", self.final_normalization),
                (f"{kind}_embedding_normalization", self.embedding_normalization),
            ):
                if is_there:
                    setattr(self, name, parts.normalization(name))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config(config_of_before(config))  # type: ignore[misc]

    def _add_positions(self, x: Any, kind: str, training: Any, start_index: Any = 0) -> Any:
        """Return the input of the first block of the encoder or the decoder."""
        positions, dropout = (getattr(self, f"{kind}_{part}") for part in ("positions", "dropout"))
        x = call_part(self, positions, x, start_index=start_index)
        if self.embedding_normalization:
            x = call_part(self, getattr(self, f"{kind}_embedding_normalization"), x)
        return call_part(self, dropout, x, training=training) if self.dropout > 0.0 else x

    def _call_block(self, block: Any, *inputs: Any, training: bool | None, **masks: Any) -> Any:
        if self.recompute and training:
            return recomputed_call(block, *inputs, training=training, **masks)
        return call_part(self, block, *inputs, training=training, **masks)


class EncoderStack(Stack):
    """Mixin: the blocks of an encoder, and the normalisation after them."""

    token_embedding: Any  # of a whole model
    encoder_blocks: list[Any]
    encoder_normalization: Any

    def _encode(self, token_ids: Any, mask: Any, training: bool | None, **more: Any) -> Any:
        """Return what the encoder makes of token ids."""
        x = call_part(self, self.token_embedding, token_ids)
        return self._run_encoder(x, training, padding_mask=mask, **more)

    def _run_encoder(
        self,
        x: Any,
        training: bool | None,
        scores: list[Any] | None = None,
        read: list[tuple[Any, Any]] | None = None,
        head_masks: list[Any] | None = None,
        **masks: Any,
    ) -> Any:
        """Return what the encoder makes of vectors; add to the lists each block's weights and its input."""
        head_masks = head_masks or [None] * len(self.encoder_blocks)
        x = self._add_positions(x, "encoder", training)
        for block, heads in zip(self.encoder_blocks, head_masks, strict=True):
            if scores is None:
                x = self._call_block(block, x, training=training, **masks, head_mask=heads)
            else:
                if read is not None:
                    read.append(self_attention_of(block, x))
                asked = {"training": training, "return_attention_scores": True}
                x, weights = call_part(self, block, x, **asked, **masks)
                scores.append(weights)
        return call_part(self, self.encoder_normalization, x) if self.final_normalization else x


class DecoderStack(Stack):
    """Mixin: a decoder of tokens, from their embedding to logits, all at once and step by step."""

    decoder_blocks: list[Any]
    decoder_normalization: Any
    output_embedding: Any
    target_vocabulary_size: int
    suppressed_token_ids: tuple[int, ...]
    compute_dtype: Any

    def initial_cache(self, batch_size: int, beam_size: int, max_length: int) -> Cache:
        """Return an empty cache for `decode_step`: what each decoder block keeps of earlier positions.

        Args:
            batch_size: Number of sentences B.
            beam_size: Number of beams W of each sentence.
            max_length: Largest number of positions L to decode.

        Returns:
            A list of dicts of zeros: keys `(B, W, L, N, K)` and values `(B, W, L, N, U)`. With SSRUs: their
            states `(B, W, D)`, in float32.
        """
        sizes = {"batch_size": batch_size, "beam_size": beam_size, "max_length": max_length}
        for name, size in sizes.items():
            if not ops.is_tensor(size):  # as the number of rows in a graph may be
                check_integer(name, size, least=1)
        caches: Cache = []
        for attention in (block.self_attention for block in self.decoder_blocks):
            if isinstance(attention, SSRU):
                shape = (batch_size, beam_size, attention.inner.units)
                caches.append({"state": ops.zeros(shape, state_dtype(self.compute_dtype))})
                continue
            axes = (*sizes.values(), attention.num_heads)
            widths = {"key": attention.key_dim, "value": attention.value_dim}
            caches.append({k: ops.zeros((*axes, w), self.compute_dtype) for k, w in widths.items()})
        return caches

    def decode_step(
        self, token_ids: Any, start_index: Any, memory: Memory, cache: Cache
    ) -> tuple[Any, Cache]:
        """Feed one token to each beam and predict the next one.

        Args:
            token_ids: Integers `(B, W)`, the last token of each of the W beams of B sentences. In the
                first step, the start token.
            start_index: Position of these tokens, from 0; an integer or a scalar tensor.
            memory: What `encode` of a `Transformer` or `memory` of a `TransformerDecoder` returned for the B
                sentences. The beams of a sentence share it.
            cache: From `initial_cache` or the previous step, with the beams in the order of `token_ids`.

        Returns:
            The logits `(B, W, V)`, float32, or float64 of a float64 model, and the new cache. The logits of
            `suppressed_token_ids` are so low that their probability is 0.
        """
        token_ids = check_sequences("token_ids", token_ids, "BW")
        check_token_ids({"token_ids": token_ids}, self.target_vocabulary_size)
        token_ids = ops.convert_to_tensor(token_ids)
        check_memory(self.decoder_blocks, memory, static_shape(token_ids))
        check_cache(self.decoder_blocks, cache, static_shape(token_ids), start_index)
        batch_size, beam_size = ops.shape(token_ids)
        new_cache = []
        x = self._embed(ops.reshape(token_ids, (-1, 1)), False, start_index)
        for block, block_memory, block_cache in zip(
            self.decoder_blocks, memory["blocks"], cache, strict=True
        ):
            rows = {k: ops.reshape(v, (-1, *v.shape[2:])) for k, v in block_cache.items()}
            x, rows = call_part(
                self,
                block,
                x,
                encoder_padding_mask=memory["padding_mask"],
                memory=block_memory,
                cache=rows,
                start_index=start_index,
                training=False,
            )
            new_cache.append(
                {k: ops.reshape(v, (batch_size, beam_size, *v.shape[1:])) for k, v in rows.items()}
            )
        logits = self._suppress(at_least_float32(self._project(x)))
        shape = (batch_size, beam_size, self.target_vocabulary_size)
        return ops.reshape(logits, shape), new_cache

    def _project_memory(self, encoded: Any, padding_mask: Any) -> Memory:
        """Return what all steps of decoding read of the encoder's output."""
        blocks = [block.project_memory(encoded) for block in self.decoder_blocks]
        return {"blocks": blocks, "padding_mask": padding_mask}

    def _embed(self, token_ids: Any, training: Any, start_index: Any = 0) -> Any:
        """Return the input of the decoder's first block."""
        embedded = call_part(self, self.output_embedding, token_ids)
        return self._add_positions(embedded, "decoder", training, start_index)

    def _run_decoder(
        self,
        x: Any,
        encoded: Any,
        padding_mask: Any,
        training: bool | None,
        head_masks: dict[str, list[Any]] | None = None,
        watched: Collection[int] = (),
    ) -> tuple[Any, dict[int, Any]]:
        """Return the last block's output, and of the blocks `watched` the weights of cross-attention."""
        heads, none = head_masks or {}, [None] * len(self.decoder_blocks)
        own_heads, cross_heads = (heads.get(kind, none) for kind in ("decoder", "cross"))
        weights = {}
        blocks = zip(self.decoder_blocks, own_heads, cross_heads, strict=True)
        for index, (block, own, cross) in enumerate(blocks):
            masks = {
                "encoder_padding_mask": padding_mask,
                "self_head_mask": own,
                "cross_head_mask": cross,
            }
            if index not in watched:
                x = self._call_block(block, x, encoded, training=training, **masks)
                continue
            # Not computed again in the backward pass, even with `recompute`, which is for one output.
            x, weights[index] = call_part(
                self,
                block,
                x,
                encoded,
                training=training,
                return_cross_attention_scores=True,
                **masks,
            )
        return x, weights

    def _suppress(self, logits: Any) -> Any:
        """Return logits with those of `suppressed_token_ids` so low that their probability is 0."""
        if not self.suppressed_token_ids:
            return logits
        suppressed = np.zeros(self.target_vocabulary_size, "float32")
        suppressed[list(self.suppressed_token_ids)] = SUPPRESSED
        return logits + ops.cast(suppressed, logits.dtype)

    def _project(self, x: Any) -> Any:
        if self.final_normalization:
            x = call_part(self, self.decoder_normalization, x)
        return call_part(self, self.output_embedding, x, reverse=True)


def self_attention_of(block: Any, inputs: Any) -> tuple[Any, Any]:
    """Return a block's self-attention and what it reads; (None, inputs) of a user's own block."""
    residual = getattr(block, "self_attention_residual", None)
    if residual is None:
        return None, inputs
    return block.self_attention, residual.normalize_input(inputs)
