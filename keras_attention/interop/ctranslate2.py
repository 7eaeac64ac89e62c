"""Export a trained Transformer to CTranslate2, which translates in C++ without Keras.

Shape letters: N heads, K key_dim, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keras_attention.interop import export_folder
from keras_attention.interop.foreign import flat_parts
from keras_attention.spec import AttentionSpec, BlockSpec, NormSpec, TransformerSpec
from keras_attention.spec.parts import as_array
from keras_attention.utils.arguments import Count, checked
from keras_attention.utils.files import atomic_folder
from keras_attention.utils.lazily import needed
from keras_attention.utils.sides import end_of, piece_of, target_size_of, unknown_of

# Name of an activation in a spec -> its name in CTranslate2.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
Quantization = Literal[
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
    "float32",
]
MODEL_FILE = "model.bin"


@checked
def export_ctranslate2(
    model: Any,
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    quantization: Quantization | None = None,
    max_length: Count = 2048,
    overwrite: bool = False,
    target_tokenizer: Any = None,
    languages: export_folder.Languages = None,
) -> Path:
    """Write a `Transformer` as a folder that `ctranslate2.Translator` loads.

    The logits are the same: the positions, the zero vector of the padding and start token, one table for
    embedding and softmax (or two), any `key_dim` and `value_dim` of several heads, stacks of different
    depths, a target vocabulary, a bias on the logits, which holds the tokens that are never produced.
    CTranslate2 takes `tokenizer.tokens(text)`, adds the end token to sources itself, and returns such tokens.
    The tokenizer is saved in the subfolder `tokenizer`; SentencePiece models of an imported one, as
    `source.spm` and `target.spm`.

    The search is CTranslate2's own, which can choose another translation than `Translator`:

    * with `length_penalty=alpha` it divides the log-probability by `length ** alpha`, where this
      package, like the authors' code, divides by `((5 + length) / 6) ** alpha`; its default is 1, and
      it counts the end token only if `return_end_token=True`, while we always count it;
    * it ends a sentence when `beam_size * patience` hypotheses have ended, not when no open hypothesis can
      win any more, and it considers an end token only among the best `beam_size` continuations, not among
      the best `2 * beam_size`; there is no rule like `"n_best_2017"`;
    * it forbids an empty translation (an end token at the first step has probability 0), unless
      `min_decoding_length=0`;
    * the longest output is `max_decoding_length`, 256 by default, for all sentences of a call; hypotheses
      that are cut off compete with their penalised score;
    * sources longer than `max_input_length`, 1024 by default, are cut off without a warning;
    * an empty source is treated as a single end token, while `Translator` returns an empty line.

    Args:
        model: A built `Transformer`, or a `TransformerSpec`.
        tokenizer: Its `Tokenizer`.
        folder: The folder to write; it is created.
        quantization: How the weights are stored: None for unchanged, `"int8"`, `"int16"`, `"float16"`,
            `"bfloat16"`, `"float32"`, or, to set the type of unquantized weights, `"int8_float16"` and
            similar.
        max_length: Number of positions that are written for models with sinusoids; longer sentences are an
            error in CTranslate2. Learned positions are written as they are.
        overwrite: Whether an exported model in `folder` may be replaced. Anything else there, and an
            export that was changed, never is.
        target_tokenizer: The `Tokenizer` of the target, of a model with a target vocabulary; it is saved in
            the subfolder `target_tokenizer`. Defaults to `tokenizer`, which has both sides if it is imported.
        languages: Codes of the language of the source and of the target, which are written into the folder.
            Defaults to None: nothing says them.

    Returns:
        The folder's path.

    Raises:
        ImportError: If CTranslate2 is not installed.
        ValueError: If CTranslate2 does not support the model (an activation, an SSRU, a single head that is
            narrow or wide), the model has no spec, the tokenizer belongs to another model, `quantization` is
            unknown, or the path holds anything but an exported model.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> import ctranslate2  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = export_ctranslate2(model, tokenizer, f"{folder}/model", quantization="int8")
    ...     translator = ctranslate2.Translator(str(path))
    ...     result = translator.translate_batch([tokenizer.tokens("a house")], beam_size=4)
    >>> ids = {tokenizer.id_to_token(i): i for i in range(tokenizer.vocabulary_size)}
    >>> text = tokenizer.decode([ids[t] for t in result[0].hypotheses[0]])  # doctest: +SKIP
    """
    target = tokenizer if target_tokenizer is None else target_tokenizer
    needed = ("id_to_token", "save")
    spec, path = export_folder.begin_export(
        model, tokenizer, folder, overwrite, *needed, target=target
    )
    check_exportable(spec)
    with atomic_folder(path, replace=overwrite) as partial:
        write_model(spec, tokenizer, partial, quantization, max_length, target)
        # Of an imported tokenizer, under the names that converters give them.
        for side, given in (("source", tokenizer), ("target", target)):
            is_imported = getattr(given, "algorithm", None) == "imported"
            models = given.sentence_piece_models() if is_imported else {}
            if side in models:
                (partial / f"{side}.spm").write_bytes(models[side])
        export_folder.save_tokenizer(tokenizer, partial / export_folder.TOKENIZER_FOLDER)
        if target is not tokenizer:
            export_folder.save_tokenizer(target, partial / export_folder.TARGET_TOKENIZER_FOLDER)
        export_folder.write_manifest(partial, "ctranslate2", languages, quantization=quantization)
    return path


def write_model(
    spec: TransformerSpec,
    tokenizer: Any,
    folder: Path,
    quantization: str | None = None,
    max_length: int = 2048,
    target_tokenizer: Any = None,
) -> None:
    """Write a complete spec for CTranslate2 into an existing folder, as `export_ctranslate2` does.

    The tokenizers need `vocabulary_size`, `id_to_token` and `unknown_token_id` alone.
    """
    # Copies: CTranslate2 quantizes in place, and an array may share the model's memory.
    copies = spec.map_weights(lambda weight: as_array(weight).copy())
    theirs = _specification(copies, tokenizer, target_tokenizer or tokenizer, max_length)
    theirs.validate()
    theirs.optimize(quantization=quantization)
    theirs.save(str(folder))


def check_exportable(spec: TransformerSpec) -> None:
    """Raise a ValueError for a model that CTranslate2 does not support."""
    options = spec.options()  # refuses blocks that differ
    if options["decoder_cell"] == "ssru":
        raise ValueError(
            "CTranslate2 has no SSRU in place of a decoder's self-attention, so this model cannot be "
            "exported. Translate with `Translator`."
        )
    activation = options["activation"]
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"CTranslate2 has no activation {activation!r}; it has {', '.join(ACTIVATIONS)}. A model "
            "with another one cannot be exported."
        )
    heads, width, key_dim, value_dim = (
        options[name] for name in ("num_heads", "hidden_dim", "key_dim", "value_dim")
    )
    if heads == 1 and max(key_dim, value_dim) != width:
        raise ValueError(
            f"CTranslate2 has a single head of the width D={width} alone, and this model one of K={key_dim}, "
            f"U={value_dim}: it cannot be exported. Translate with `Translator`."
        )


def _vocabulary(tokenizer: Any, side: str) -> list[str]:
    size = tokenizer.vocabulary_size if side == "source" else target_size_of(tokenizer)
    vocabulary = [piece_of(tokenizer, token_id, side) for token_id in range(size)]
    if len(set(vocabulary)) < len(vocabulary):
        twice = sorted(token for token in set(vocabulary) if vocabulary.count(token) > 1)
        raise ValueError(
            "CTranslate2 knows tokens by their text, so each must be there once. These are there more "
            f"often: {twice[:10]}"
        )
    return vocabulary


def _specification(
    spec: TransformerSpec, tokenizer: Any, target_tokenizer: Any, max_length: int
) -> Any:
    """CTranslate2's description of the model, filled with the NumPy weights of a spec."""
    message = (
        "The export needs CTranslate2, which is not installed: pip install 'ctranslate2>=4.8'."
    )
    library = needed("ctranslate2.specs", message)
    vocabulary = _vocabulary(target_tokenizer, "target")
    options = spec.options()
    theirs = library.transformer_spec.TransformerSpec.from_config(
        options["num_layers"],
        options["num_heads"],
        pre_norm=options["final_normalization"],  # which makes room for the last norm
        activation=getattr(library.common_spec.Activation, ACTIVATIONS[options["activation"]]),
        ffn_glu=options["gated_feed_forward"],
        rms_norm=options["normalization"] == "rms",
        layernorm_embedding=options["embedding_normalization"],
    )
    target = spec.output_embedding
    table, softmax, bias = target.embeddings, target.reverse_embeddings, spec.decoding_bias()
    theirs.decoder.embeddings.weight = _without_padding(spec, table)
    theirs.encoder.embeddings[0].weight = (
        theirs.decoder.embeddings.weight
        if spec.target_embedding is None
        else _without_padding(spec, spec.embedding.embeddings)
    )
    theirs.decoder.projection.weight = table if softmax is None else softmax.T.copy()
    if bias is not None:
        theirs.decoder.projection.bias = bias
    for stack, ours in ((theirs.encoder, spec.encoder), (theirs.decoder, spec.decoder)):
        length = spec.max_length or max_length
        stack.position_encodings.encodings = spec.positions(ours, length)
        for layer, block in zip(stack.layer, ours.blocks, strict=True):
            _set_block(layer, block)
        stack.pre_norm = options["normalize_first"]
        if ours.norm is not None:
            _set_norm(stack.layer_norm, ours.norm)
        if ours.embedding_norm is not None:
            _set_norm(stack.layernorm_embedding, ours.embedding_norm)
    theirs.register_source_vocabulary(_vocabulary(tokenizer, "source"))
    theirs.register_target_vocabulary(vocabulary)
    start = vocabulary[spec.start_token_id]
    for name, value in {
        "unk_token": vocabulary[unknown_of(target_tokenizer, "target")],
        "bos_token": start,
        "eos_token": vocabulary[spec.end_token_id],
        "decoder_start_token": start,
        "add_source_eos": bool(end_of(tokenizer, "source")),
        "layer_norm_epsilon": options["layer_norm_epsilon"],
    }.items():
        setattr(theirs.config, name, value)
    return theirs


def _without_padding(spec: TransformerSpec, table: np.ndarray) -> np.ndarray:
    """Return a table for looking up; the softmax keeps the row of the padding token."""
    embedding = table.copy()
    embedding[spec.pad_token_id] = 0.0
    return embedding


def _set_block(layer: Any, block: BlockSpec) -> None:
    # A block with an SSRU was refused earlier.
    assert isinstance(block.self_attention, AttentionSpec)
    _set_attention(layer.self_attention, block.self_attention, own=True)
    _set_norm(layer.self_attention.layer_norm, block.self_attention_norm)
    if block.cross_attention is not None and block.cross_attention_norm is not None:
        _set_attention(layer.attention, block.cross_attention, own=False)
        _set_norm(layer.attention.layer_norm, block.cross_attention_norm)
    network = block.feed_forward
    for name, dense in (("0", network.inner), ("1", network.outer), ("0_noact", network.gate)):
        if dense is not None:
            linear = getattr(layer.ffn, f"linear_{name}")
            linear.weight, linear.bias = np.ascontiguousarray(dense.kernel.T), dense.bias
    _set_norm(layer.ffn.layer_norm, block.feed_forward_norm)


def _set_attention(layer: Any, attention: AttentionSpec, own: bool) -> None:
    """Weights of an attention layer. With `own` (self-attention), one product gives queries, keys, values.

    CTranslate2 has one width for queries, keys and values.
    """
    key_dim, value_dim = attention.query.kernel.shape[2], attention.value.kernel.shape[2]
    layer.queries_scale = np.float32(key_dim**-0.5)
    query, key, value, output = flat_parts(attention, max(key_dim, value_dim))
    groups = [[query, key, value]] if own else [[query], [key, value]]
    for linear, group in zip(layer.linear, [*groups, [output]], strict=True):
        kernel = np.concatenate([dense.kernel for dense in group], axis=1)
        linear.weight = np.ascontiguousarray(kernel.T)
        if group[0].bias is not None:
            linear.bias = np.concatenate([dense.bias for dense in group])


def _set_norm(layer: Any, norm: NormSpec) -> None:
    layer.gamma = norm.gamma
    if norm.beta is not None:
        layer.beta = norm.beta
