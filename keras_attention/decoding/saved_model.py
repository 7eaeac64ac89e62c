"""Export a trained Transformer as a SavedModel of TensorFlow: text in, text out, the search inside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.decoding.hypotheses import SearchRules
from keras_attention.engine.select import is_installed, refusal
from keras_attention.interop.export_folder import (
    MOST_POSITIONS,
    Languages,
    Positions,
    begin_export,
    write_manifest,
)
from keras_attention.spec.parts import as_array, check_finite
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.arguments import BeamSize, LengthPenalty, checked
from keras_attention.utils.backend import running_backend
from keras_attention.utils.files import atomic_folder


@checked
def export_saved_model(
    model: Any,
    tokenizer: Any,
    folder: str | os.PathLike[str],
    *,
    beam_size: BeamSize = 4,
    length_penalty: LengthPenalty = 0.6,
    max_extra_length: Annotated[int, Ge(0), Le(MOST_POSITIONS)] = 50,
    max_length: Positions = 1024,
    overwrite: bool = False,
    languages: Languages = None,
) -> Path:
    """Write a `Transformer` as a SavedModel, which translates strings with TensorFlow and tensorflow-text.

    Normalisation, SentencePiece, the search of `Translator` and detokenisation are one graph, for any number
    of texts of up to `max_length` tokens. A program that loads it imports neither this package nor its model,
    but `tensorflow_text`, which has the operations of SentencePiece; TensorFlow Serving has them built in.
    The signatures:

    * `translate(texts, n_best)`: `texts` (B,) strings; an int32 number of at most `beam_size`. Returns
      `translations` (B, n_best), different texts, best first, and `scores` (B, n_best), as
      `Translator.translate` does. An empty text gives an empty one with score 0. Where a beam has fewer
      translations, "" with score `-inf` fills up.
    * `serving_default(texts)`: the same with one translation.
    * `score(sources, targets)`: strings (B,) and (B,). Returns `log_probabilities` (B,), the sum over the
      tokens of a target, its end token included; about -1e30 if one of them is never produced.

    What cannot be translated is an error of the whole call that names the text: one that is not UTF-8, or
    longer than `max_length`. All computation is in float32.

    Args:
        model: A built `Transformer`, or a `TransformerSpec`.
        tokenizer: Its `Tokenizer`, a "bpe" one.
        folder: The folder to write; it is created.
        beam_size: Number of beams. Defaults to 4.
        length_penalty: The paper's alpha. Defaults to 0.6.
        max_extra_length: Largest number of tokens that a translation may have more than its source.
            Defaults to 50.
        max_length: Largest number of tokens of a source, end token included; learned positions may set a
            lower limit. Defaults to 1024.
        overwrite: Whether an exported model in `folder` may be replaced. Anything else there, and an export
            that was changed, never is.
        languages: Codes of the language of the source and of the target, which are written into the folder.
            Defaults to None: nothing says them.

    Returns:
        The folder's path.

    Raises:
        ImportError: If TensorFlow or tensorflow-text is not installed.
        NonFiniteModel: If a weight is infinite or NaN.
        ValueError: If tensorflow-text has no such tokenizer, TensorFlow's engine cannot run the model,
            the tokenizer belongs to another model, Keras runs on another backend, an
            option is out of range, or the path holds anything but an exported model.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.tokenizer import Tokenizer
    >>> from keras_attention.models.transformer import Transformer
    >>> tokenizer = Tokenizer.train(["ein kleines Haus", "a small house"], vocabulary_size=280)
    >>> model = Transformer.from_preset("tiny", vocabulary_size=tokenizer.vocabulary_size)
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = export_saved_model(model, tokenizer, f"{folder}/model")
    ...     translate = tf.saved_model.load(path).signatures["translate"]
    ...     found = translate(texts=tf.constant(["a house"]), n_best=tf.constant(2))
    """
    spec, path = begin_export(model, tokenizer, folder, overwrite, "algorithm", "model")
    _check_exportable(spec, tokenizer)
    check_finite(spec.weights())
    _check_backend()
    # Imported here, because it needs Keras and TensorFlow.
    from keras_attention.decoding.saved_model_graph import write_graph

    ids = (spec.start_token_id, spec.end_token_id, spec.pad_token_id)
    rules, lengths = SearchRules(beam_size, *ids, length_penalty), (max_length, max_extra_length)
    with atomic_folder(path, replace=overwrite) as partial:
        write_graph(spec.map_weights(as_array), tokenizer, rules, lengths, partial)
        search = {"beam_size": beam_size, "length_penalty": length_penalty}
        search["max_extra_length"] = max_extra_length
        write_manifest(partial, "saved_model", languages, search=search)
    return path


def _check_exportable(spec: TransformerSpec, tokenizer: Any) -> None:
    if tokenizer.algorithm != "bpe":
        raise ValueError(
            "In a SavedModel, tensorflow-text splits the text, and it has the same pieces and ids only for a "
            f"'bpe' tokenizer of this package. Received: algorithm={tokenizer.algorithm!r}. Translate with "
            "`Translator`, or export to format='ctranslate2'."
        )
    problem = refusal("tensorflow", spec, "float32")
    if problem is not None:
        raise ValueError(f"A SavedModel cannot hold this model. {problem}")


def _check_backend() -> None:
    """Raise unless TensorFlow and tensorflow-text are there, and Keras runs on TensorFlow."""
    missing = [name for name in ("tensorflow", "tensorflow_text") if not is_installed(name)]
    if missing:
        raise ImportError(
            f"A SavedModel is written by TensorFlow and tensorflow-text; {' and '.join(missing)} cannot be "
            "found: pip install 'keras-attention-transformer[saved_model]'."
        )
    if running_backend() != "tensorflow":
        raise ValueError(
            "A SavedModel is written on the TensorFlow backend; Keras runs on "
            f"{running_backend()!r}. Start another process with KERAS_BACKEND=tensorflow, which reads "
            "runs and presets of every backend, or use `keras-attention export`, which does so."
        )
