"""Export a trained Transformer to ONNX, which onnxruntime runs in many languages and in browsers.

Shape letters: N heads, K key_dim, U value_dim, D hidden_dim.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from keras_attention.engine.onnx_graph import decoder_model, encoder_model
from keras_attention.engine.onnx_operations import library
from keras_attention.interop.export_folder import (
    TOKENIZER_FOLDER,
    Languages,
    Positions,
    begin_export,
    save_tokenizer,
    write_manifest,
)
from keras_attention.interop.marian_files import MarianFiles, is_marian_tokenizer
from keras_attention.interop.onnx_model import DECODER_FILE, ENCODER_FILE, SETTINGS, ids_of
from keras_attention.spec.parts import as_array
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.arguments import Count, checked
from keras_attention.utils.files import atomic_folder

# A file of protobuf holds less than 2 GiB; the weights of a larger model get a file of their own.
LARGEST_FILE = 2**31 - 2**24


@checked
def export_onnx(
    model: Any,
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    beam_size: Count = 4,
    max_length: Positions = 1024,
    overwrite: bool = False,
    languages: Languages = None,
) -> Path:
    """Write a `Transformer` as ONNX files, the encoder and a decoder that keeps keys and values.

    The files have the names, the inputs and the outputs of optimum, which transformers.js shares:

    * `encoder_model.onnx`: `input_ids`, `attention_mask` to `last_hidden_state`;
    * `decoder_model_merged.onnx`: `input_ids`, `encoder_hidden_states`, `encoder_attention_mask`,
      `use_cache_branch` and `past_key_values.N.{decoder,encoder}.{key,value}` to `logits` and
      `present.N...`. One file begins and goes on, so that no weight is there twice;
    * `tokenizer/`, the tokenizer. `Translator.from_preset` reads the folder, runs it by onnxruntime and
      searches as for any other model: with the same search settings, of which the folder has the number of
      beams, the translations are the same;
    * if the tokenizer is one that `MarianTokenizer` can be, and K = U = D / N: `config.json`,
      `generation_config.json` and the files of `MarianTokenizer`, with the same ids. transformers'
      `generate` has another length penalty; see `export_hugging_face`.

    Every model that has a spec can be written: with SSRUs (whose past is
    `past_key_values.N.decoder.state`), any positions and activations. Weights are float32; they are written
    as they are, in each backend to the same bytes.

    Args:
        model: A built `Transformer`, or a `TransformerSpec`.
        tokenizer: Its `Tokenizer`.
        folder: The folder to write; it is created.
        beam_size: Number of beams in the folder's search settings. Defaults to 4.
        max_length: Number of positions that are written of sinusoids: texts with more tokens are refused, and
            translations end there. Of learned positions all are written. Defaults to 1024.
        overwrite: Whether an exported model in `folder` may be replaced. Anything else there, and an export
            that was changed, never is.
        languages: Codes of the language of the source and of the target, which are written into the folder.
            Defaults to None: nothing says them.

    Returns:
        The folder's path.

    Raises:
        ImportError: If onnx is not installed.
        ValueError: If no spec describes the model, the tokenizer belongs
            to another model, or the path holds anything but an exported model.

    Example:

    >>> import tempfile
    >>> from keras_attention.decoding.translator import Translator
    >>> translator = Translator.from_preset("demo_en_de")
    >>> path = translator.export(tempfile.mkdtemp() + "/onnx", "onnx")  # doctest: +SKIP
    >>> Translator.from_preset(path)("The dog sleeps.")  # doctest: +SKIP
    'Der Hund schläft.'
    """
    spec, path = begin_export(model, tokenizer, folder, overwrite, "id_to_token", "save")
    library()
    with atomic_folder(path, replace=overwrite) as partial:
        write_onnx(spec, partial, max_length, beam_size)
        if _is_for_transformers(spec, tokenizer):
            files = MarianFiles(spec, tokenizer, keeps_ids=True)
            files.write(partial, beam_size, spec.max_length or max_length, languages)
        save_tokenizer(tokenizer, partial / TOKENIZER_FOLDER)
        write_manifest(partial, "onnx", languages)
    return path


def write_onnx(spec: TransformerSpec, folder: Path, max_length: int, beam_size: int) -> None:
    """Write the two graphs of a complete spec into an existing folder."""
    onnx = library()
    spec = spec.map_weights(as_array)
    length = spec.max_length or max_length
    settings = {**ids_of(spec), "max_length": length, "beam_size": beam_size}
    metadata = {SETTINGS: json.dumps(settings)}
    for name, make in ((ENCODER_FILE, encoder_model), (DECODER_FILE, decoder_model)):
        model = make(spec, length, metadata)
        path = folder / name
        is_large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST_FILE
        # The names that optimum and transformers.js look for.
        onnx.save_model(model, path, save_as_external_data=is_large, location=f"{name}_data")
        onnx.checker.check_model(str(path))


def _is_for_transformers(spec: TransformerSpec, tokenizer: Any) -> bool:
    """Whether programs can drive the graphs that know MarianMT by its settings."""
    width, cells = spec.hidden_dim, spec.decoder.blocks
    has_keys = all(len(block.attentions) == 2 for block in cells)
    is_usual = spec.key_dim == spec.value_dim == width / spec.num_heads
    return has_keys and is_usual and is_marian_tokenizer(tokenizer)
