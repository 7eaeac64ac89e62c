"""Export a trained Transformer as a folder of Hugging Face, which many programs read.

Shape letters: N heads, K key_dim, U value_dim, D hidden_dim, F intermediate_dim, V vocabulary.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.interop.export_folder import (
    Languages,
    Positions,
    begin_export,
    write_manifest,
)
from keras_attention.interop.foreign import flat_parts, permute_hidden
from keras_attention.interop.hugging_face import CONFIG_FILE, NEVER, OWN_SETTINGS, SAFE_WEIGHTS
from keras_attention.interop.marian_files import ACTIVATIONS, MarianFiles, is_marian_tokenizer
from keras_attention.interop.residual_powers import EPSILON, ResidualPowers, residual_factor
from keras_attention.spec import parts
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.arguments import Count, checked
from keras_attention.utils.files import atomic_folder
from keras_attention.utils.lazily import needed

Named = Iterator[tuple[str, np.ndarray]]


@checked
def export_hugging_face(
    model: Any,
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    beam_size: Count = 4,
    max_length: Positions = 512,
    overwrite: bool = False,
    languages: Languages = None,
) -> Path:
    """Write a `Transformer` as a folder of Hugging Face, with the tokenizer and the search settings.

    A model with normalisation after each sub-layer, as in the paper, becomes a `MarianMTModel`; one with
    `normalize_first` a `PegasusForConditionalGeneration`. transformers, optimum, transformers.js,
    CTranslate2's converter and others read the folder:

    * `AutoTokenizer` gives the ids of OPUS-MT: the end token first, the unknown token second, padding last.
      What is written in a text like a special token, such as `"</s>"`, is one for it.
    * The logits are the same, to 1e-4 where it was measured. transformers has one epsilon in normalisations,
      1e-5: a model with a smaller one is written with a residual stream that is larger by a power of two, as
      if its epsilon were at most twice as large or as small.
    * If the model has learned a logit for padding, that is the last but one piece, because padding has none
      there.
    * The search is the other program's own, which can choose another translation than `Translator`:
      transformers divides scores by `length ** length_penalty`, where this package, like the authors' code,
      divides by `((5 + length) / 6) ** alpha`.

    `Translator.from_preset` reads the folder again, with the weights that were exported.

    Args:
        model: A built `Transformer`, or a `TransformerSpec`.
        tokenizer: Its `Tokenizer`: "bpe", or an imported one.
        folder: The folder to write; it is created.
        beam_size: Number of beams in the folder's search settings. Defaults to 4.
        max_length: Longest translation in the search settings, and number of positions. Defaults to 512.
        overwrite: Whether an exported model in `folder` may be replaced. Anything else there, and an export
            that was changed, never is.
        languages: Codes of the language of the source and of the target, which are written into the folder.
            Defaults to None: nothing says them.

    Returns:
        The folder's path.

    Raises:
        ImportError: If safetensors or protobuf is not installed.
        ValueError: If transformers has no such model: it has other positions than the paper's, an
            SSRU, or heads wider than D / N. Or the tokenizer belongs to another model,
            or the path holds anything but an exported model.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = export_hugging_face(model, tokenizer, f"{folder}/model")
    ...     theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(path)
    """
    spec, path = begin_export(model, tokenizer, folder, overwrite, "sentence_piece_models")
    _check_exportable(spec)
    if not is_marian_tokenizer(tokenizer):
        raise ValueError(
            "MarianTokenizer splits text by SentencePiece alone, then adds the end token: the tokenizer "
            "must be a 'bpe' one, or an imported one of SentencePiece models, without prefix and languages. "
            f"Received: algorithm={tokenizer.algorithm!r}, normalization={tokenizer.normalization!r}, "
            f"source_prefix={tokenizer.source_prefix!r}, ends_source={tokenizer.ends_source}, "
            f"{len(tokenizer.languages)} languages"
        )
    message = (
        "The export needs safetensors, which is not installed: pip install 'safetensors>=0.6'."
    )
    library = needed("safetensors.numpy", message)
    exported = _Export(spec.map_weights(parts.as_array), tokenizer)
    with atomic_folder(path, replace=overwrite) as partial:
        weights = {
            name: np.ascontiguousarray(array) for name, array in exported.weights(max_length)
        }
        library.save_file(weights, partial / SAFE_WEIGHTS, metadata={"format": "pt"})
        exported.write(partial, beam_size, max_length, languages)
        # safetensors would let nobody else read it.
        shutil.copymode(partial / CONFIG_FILE, partial / SAFE_WEIGHTS)
        write_manifest(partial, "hugging_face", languages)
    return path


def _check_exportable(spec: TransformerSpec) -> None:
    """Raise a ValueError for a model that transformers has no class for."""
    options = spec.options()  # refuses blocks that differ
    layout, activation = options["position_layout"], options["activation"]
    heads, width, epsilon = (
        options[name] for name in ("num_heads", "hidden_dim", "layer_norm_epsilon")
    )
    widest = max(options["key_dim"], options["value_dim"])
    is_pre_norm = options["normalize_first"]
    advice = (
        " Import an OPUS-MT model with positions='as_transformers' if it is to be exported again."
        if layout == "halves"
        else ""
    )
    for is_refused, theirs, ours in (
        (options["decoder_cell"] == "ssru", "self-attention in every decoder", "an SSRU"),
        (options["normalization"] == "rms", "layer normalisation", "RMSNorm"),
        (options["gated_feed_forward"], "feed-forward networks without gates", "gates"),
        (
            options["embedding_normalization"],
            "embeddings as they are",
            "embeddings that are normalised",
        ),
        (layout != "interleaved", "the paper's positions", f"position_layout={layout!r}"),
        (activation not in ACTIVATIONS, f"the activations {list(ACTIVATIONS)}", f"{activation!r}"),
        (
            width % heads or width % 2 or widest * heads > width,
            "heads that divide an even width D, and keys and values of at most D / N",
            f"D={width}, N={heads}, K={options['key_dim']}, U={options['value_dim']}",
        ),
        (epsilon > EPSILON, f"layer_norm_epsilon={EPSILON}", f"{epsilon}"),
        (
            options["final_normalization"] != is_pre_norm,
            "a last normalisation where normalisations are first",
            f"final_normalization={options['final_normalization']}, normalize_first={is_pre_norm}",
        ),
        (
            is_pre_norm and spec.target_embedding is not None,
            "one vocabulary where normalisations are first",
            "two",
        ),
    ):
        if is_refused:
            raise ValueError(
                f"The translation models of transformers have {theirs}; this model has {ours}, so it cannot "
                f"be exported.{advice}"
            )


class _Export(MarianFiles):
    """A model with the ids and the order of hidden dimensions that transformers expects."""

    def __init__(self, spec: TransformerSpec, tokenizer: Any) -> None:
        super().__init__(spec, tokenizer)
        self._factor = residual_factor(self._options["layer_norm_epsilon"])
        # transformers has the paper's sines first and the cosines behind them.
        self._order = np.arange(spec.hidden_dim).reshape(-1, 2).T.ravel()
        self._spec = permute_hidden(spec, self._order)

    def weights(self, max_length: int) -> Named:
        """Yield all weights with their names in transformers."""
        options = self._options
        powers = ResidualPowers(self._depths[1], options["tie_weights"], options["normalize_first"])
        for name, weight in self._unscaled(max_length):
            yield name, powers.scaled(name, weight, self._factor)

    def _config(self, max_length: int) -> dict[str, Any]:
        config = super()._config(max_length)
        config[OWN_SETTINGS]["residual_factor"] = self._factor
        return config

    def _unscaled(self, max_length: int) -> Named:
        yield from self._tables()
        for kind in ("encoder", "decoder"):
            stack = getattr(self._spec, kind)
            if self._options["normalize_first"]:  # Marian's models compute theirs.
                rows = parts.sinusoid(np.arange(max_length), self._spec.hidden_dim)[:, self._order]
                yield f"model.{kind}.embed_positions.weight", rows
            for number, block in enumerate(stack.blocks):
                yield from self._block(f"model.{kind}.layers.{number}", block)
            if stack.norm is not None:
                yield from _norm(f"model.{kind}.layer_norm", stack.norm)

    def _tables(self) -> Named:
        source, target = self._spec.embedding, self._spec.output_embedding
        is_tied, names = self._options["tie_weights"], ["model.decoder.embed_tokens.weight"]
        if not self._has_two:
            # Tied models read the first of these, untied ones all.
            both = ["model.shared.weight", "model.encoder.embed_tokens.weight"]
            names = both[:1] if is_tied else [*both, *names]
        table = _rows(target.embeddings, self._ids[-1])
        for name in names:
            yield name, table.copy()
        if self._has_two:
            yield "model.encoder.embed_tokens.weight", _rows(source.embeddings, self._ids[0])
        if not is_tied:
            yield "lm_head.weight", _rows(target.reverse_embeddings.T, self._ids[-1])
        bias = np.zeros(len(target.embeddings), "float32")
        if target.logits_bias is not None:
            bias = target.logits_bias
        bias = _rows(bias, self._ids[-1])
        bias[self._never] = NEVER
        yield "final_logits_bias", bias[None]

    def _block(self, name: str, block: parts.BlockSpec) -> Named:
        yield from self._attention(f"{name}.self_attn", block.self_attention)
        yield from _norm(f"{name}.self_attn_layer_norm", block.self_attention_norm)
        if block.cross_attention is not None and block.cross_attention_norm is not None:
            yield from self._attention(f"{name}.encoder_attn", block.cross_attention)
            yield from _norm(f"{name}.encoder_attn_layer_norm", block.cross_attention_norm)
        # What has none of these was refused earlier.
        yield from _dense(f"{name}.fc1", block.feed_forward.inner)
        yield from _dense(f"{name}.fc2", block.feed_forward.outer)
        yield from _norm(f"{name}.final_layer_norm", block.feed_forward_norm)

    def _attention(self, name: str, attention: Any) -> Named:
        """Yield the four maps, with heads of the width D / N."""
        assert isinstance(attention, parts.AttentionSpec)
        width = self._options["hidden_dim"] // self._options["num_heads"]
        # transformers divides products by the square root of that width, not of K.
        scale = math.sqrt(width / self._options["key_dim"])
        query, key, value, output = flat_parts(attention, width)
        yield from _dense(f"{name}.q_proj", query, scale)
        yield from _dense(f"{name}.k_proj", key)
        yield from _dense(f"{name}.v_proj", value)
        yield from _dense(f"{name}.out_proj", output)


def _rows(table: np.ndarray, ids: list[int | None]) -> np.ndarray:
    """Return the rows of these ids; zeros where there is none."""
    rows = np.zeros((len(ids), *table.shape[1:]), "float32")
    there = [new for new, old in enumerate(ids) if old is not None]
    rows[there] = table[[old for old in ids if old is not None]]
    return rows


def _dense(name: str, dense: parts.DenseSpec, scale: float = 1.0) -> Named:
    yield f"{name}.weight", dense.kernel.T * np.float32(scale)
    bias = np.zeros(dense.kernel.shape[1], "float32") if dense.bias is None else dense.bias
    yield f"{name}.bias", bias * np.float32(scale)


def _norm(name: str, norm: parts.NormSpec) -> Named:
    yield f"{name}.weight", norm.gamma
    yield f"{name}.bias", norm.beta
