"""KerasHub's door: once this module is imported, a preset of ours is a preset of KerasHub.

Generation is KerasHub's: its samplers choose, over one `decode_step` of the model for each token. An example
that is run stands in `docs/pretrained.md`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_attention.data.saved_tokenizer import MODEL_FILE, SAVED
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.models.token_ids import INPUT_NAMES
from keras_attention.models.transformer import Transformer
from keras_attention.utils.sides import encode_ended

TARGET_MASK = "decoder_padding_mask"  # KerasHub's name


# Under the name that presets have: KerasHub asks for a class of its own.
@keras.saving.register_keras_serializable("keras_attention", name="Transformer")
class TransformerBackbone(Transformer, keras_hub.models.Backbone):
    """A `Transformer` that is also a backbone of KerasHub: `Backbone.from_preset` makes one of a preset.

    Its outputs are the logits. Once this module is imported, `keras.saving.load_model` makes one, too.
    """


@keras.saving.register_keras_serializable("keras_attention")
class TransformerTokenizer(keras_hub.tokenizers.Tokenizer):
    """Our `Tokenizer` as KerasHub takes it: `Tokenizer.from_preset` reads it from a preset.

    Args:
        tokenizer: A `keras_attention.Tokenizer`; None if `load_assets` will read one.
        **kwargs: As of `keras_hub.tokenizers.Tokenizer`.
    """

    backbone_cls = TransformerBackbone

    def __init__(self, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.file_assets = [MODEL_FILE, SAVED.manifest]
        if tokenizer is not None:
            self._take(tokenizer)

    def _take(self, tokenizer: Tokenizer) -> None:
        self.own = tokenizer
        for name in ("pad_token_id", "start_token_id", "end_token_id", "unknown_token_id"):
            setattr(self, name, getattr(tokenizer, name))

    def load_assets(self, folder: str) -> None:
        """Read the tokenizer from the two files of a folder."""
        self._take(Tokenizer.load(folder))

    def save_assets(self, folder: str) -> None:
        """Write these two files."""
        self.own.save(folder, overwrite=True)

    def call(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        return self.tokenize(inputs, *args, **kwargs)

    def tokenize(self, inputs: Any, side: str = "source") -> Any:
        """Return the ids of a text, or of each of several; no end token is added."""
        texts = _texts(inputs)
        rows = self.own.encode(texts, side=side)
        return rows[0] if isinstance(inputs, str | bytes) else rows

    def detokenize(self, inputs: Any) -> Any:
        """Return the text of ids of the target, or of each of several rows."""
        return self.own.decode(inputs)

    def vocabulary_size(self) -> int:
        """Return the number of ids of the source."""
        return self.own.vocabulary_size

    def get_vocabulary(self) -> list[str]:
        """Return the pieces of the source, by their ids."""
        return [self.own.id_to_token(i, "source") for i in range(self.vocabulary_size())]

    def id_to_token(self, id: int) -> str:  # noqa: A002  KerasHub's name
        """Return the piece of an id of the source."""
        return self.own.id_to_token(id, "source")

    def token_to_id(self, token: str) -> int:
        """Return the id of a piece of the source."""
        return self.get_vocabulary().index(token)


@keras.saving.register_keras_serializable("keras_attention")
class TransformerSeq2SeqLMPreprocessor(keras_hub.models.Seq2SeqLMPreprocessor):
    """Texts to padded ids and back. It runs in Python: no text is cut off, and no graph can hold it.

    Args:
        tokenizer: A `TransformerTokenizer`.
        encoder_sequence_length: Number of tokens to which sources are padded, the end token included.
        decoder_sequence_length: Largest number of tokens of a translation, start and end token included.
        **kwargs: As of `keras_hub.models.Preprocessor`.

    Raises:
        ValueError: If a text is longer.
    """

    backbone_cls = TransformerBackbone
    tokenizer_cls = TransformerTokenizer

    def __init__(
        self,
        tokenizer: TransformerTokenizer,
        encoder_sequence_length: int = 256,
        decoder_sequence_length: int = 256,
        **kwargs: Any,
    ):
        super().__init__(tokenizer, encoder_sequence_length, decoder_sequence_length, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        self.built = True

    def call(
        self,
        x: dict[str, Any],
        y: Any = None,
        sample_weight: Any = None,
        *,
        encoder_sequence_length: int | None = None,
        decoder_sequence_length: int | None = None,
        sequence_length: int | None = None,
    ) -> Any:
        source = self._sources(x["encoder_text"], encoder_sequence_length)
        length = decoder_sequence_length or sequence_length or self.decoder_sequence_length
        end = [self.tokenizer.end_token_id]
        target, mask = self._targets(x["decoder_text"], length + 1, end)
        inputs = dict(zip(INPUT_NAMES, (source, target[:, :-1]), strict=True))
        return keras.utils.pack_x_y_sample_weight(inputs, target[:, 1:], mask[:, 1:])

    def generate_preprocess(
        self,
        x: Any,
        *,
        encoder_sequence_length: int | None = None,
        decoder_sequence_length: int | None = None,
        sequence_length: int | None = None,
    ) -> dict[str, Any]:
        """Return ids of sources and of the beginnings of their translations, if `x` is a dict with both."""
        sources = x["encoder_text"] if isinstance(x, dict) else x
        begun = x["decoder_text"] if isinstance(x, dict) else [""] * len(_texts(sources))
        length = decoder_sequence_length or sequence_length or self.decoder_sequence_length
        source = self._sources(sources, encoder_sequence_length)
        target, mask = self._targets(begun, length)
        return {**dict(zip(INPUT_NAMES, (source, target), strict=True)), TARGET_MASK: mask}

    def generate_postprocess(self, x: dict[str, Any]) -> list[str]:
        """Return the texts of what `generate_step` returned."""
        ids, masks = (ops.convert_to_numpy(x[name]) for name in (INPUT_NAMES[1], TARGET_MASK))
        rows = [row[mask][1:] for row, mask in zip(ids, masks.astype(bool), strict=True)]
        return [self.tokenizer.detokenize(row) for row in rows]

    def _sources(self, texts: Any, length: int | None) -> np.ndarray:
        rows = encode_ended(self.tokenizer.own, _texts(texts), "source")
        return self._padded(rows, length or self.encoder_sequence_length, "encoder")[0]

    def _targets(
        self, texts: Any, length: int, end: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        start = [self.tokenizer.start_token_id]
        rows = self.tokenizer.tokenize(_texts(texts), side="target")
        return self._padded([[*start, *row, *end] for row in rows], length, "decoder")

    def _padded(
        self, rows: list[list[int]], length: int, kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        ids = np.full((len(rows), length), self.tokenizer.pad_token_id, "int32")
        mask = np.zeros(ids.shape, bool)
        for number, row in enumerate(rows):
            if len(row) > length:
                raise ValueError(
                    f"Text {number} has {len(row)} tokens; there is room for {length}. Pass a larger "
                    f"`{kind}_sequence_length`, or split the text."
                )
            ids[number, : len(row)], mask[number, : len(row)] = row, True
        return ids, mask


@keras.saving.register_keras_serializable("keras_attention")
class TransformerSeq2SeqLM(keras_hub.models.Seq2SeqLM):
    """A `Transformer` that generates as KerasHub's models do: `Seq2SeqLM.from_preset` makes one.

    Args:
        backbone: A `TransformerBackbone`.
        preprocessor: A `TransformerSeq2SeqLMPreprocessor`; None if ids come and go.
        **kwargs: As of `keras_hub.models.Task`.
    """

    backbone_cls = TransformerBackbone
    preprocessor_cls = TransformerSeq2SeqLMPreprocessor

    def __init__(
        self,
        backbone: TransformerBackbone,
        preprocessor: TransformerSeq2SeqLMPreprocessor | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.dtype_policy = backbone.dtype_policy
        if preprocessor is not None and backbone.max_length is not None:  # of learned positions
            for name in ("encoder_sequence_length", "decoder_sequence_length"):
                setattr(preprocessor, name, min(getattr(preprocessor, name), backbone.max_length))

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.backbone({name: inputs[name] for name in INPUT_NAMES}, training=training)

    def generate_step(
        self, inputs: dict[str, Any], stop_token_ids: Iterable[int] | None = None
    ) -> dict[str, Any]:
        """Let the sampler write the translations of a batch behind what is given of them.

        Args:
            inputs: What `generate_preprocess` returns.
            stop_token_ids: Tokens that end a translation; None to go on to the end of the row.

        Returns:
            A dict of `decoder_token_ids` and `decoder_padding_mask`.
        """
        given, mask = (
            ops.cast(inputs[INPUT_NAMES[1]], "int32"),
            ops.cast(inputs[TARGET_MASK], "bool"),
        )
        rows, length = ops.shape(given)
        # A sampler keeps several rows of a sentence, so what does not change goes with them.
        memory = self.backbone.encode(inputs[INPUT_NAMES[0]])
        cache = memory, self.backbone.initial_cache(rows, 1, length)

        def next_token(tokens, cache, index):
            memory, own = cache
            last = ops.slice(tokens, (0, index - 1), (ops.shape(tokens)[0], 1))
            logits, own = self.backbone.decode_step(last, index - 1, memory, own)
            return ops.squeeze(logits, 1), None, (memory, own)

        first = ops.min(ops.sum(ops.cast(mask, "int32"), axis=-1))
        _, cache = ops.while_loop(
            lambda index, cache: index < first,
            lambda index, cache: (index + 1, next_token(given, cache, index)[2]),
            (ops.ones((), "int32"), cache),
        )
        found = self.sampler(
            next=next_token,
            prompt=given,
            cache=cache,
            index=first,
            mask=mask,
            stop_token_ids=stop_token_ids,
            model=self,
        )
        is_end = ops.zeros_like(mask)
        for token in stop_token_ids or ():
            is_end = is_end | ((found == token) & ops.logical_not(mask))
        ends = ops.cumsum(ops.cast(is_end, "int32"), axis=-1)
        is_behind = ends - ops.cast(is_end, "int32") > 0
        return {INPUT_NAMES[1]: found, TARGET_MASK: ops.logical_not(is_behind)}


def _texts(inputs: Any) -> list[str]:
    """Return one text or several, of whatever Keras passes on, as a list."""
    if isinstance(inputs, str | bytes):
        inputs = [inputs]
    if hasattr(inputs, "numpy"):
        inputs = inputs.numpy()
    if not isinstance(inputs, list | tuple | np.ndarray):
        raise ValueError(
            "Texts must be a string or several: they are split into tokens in Python, which no graph of "
            f"TensorFlow can hold. Call the preprocessor before. Received: {inputs!r}"
        )
    return [text.decode() if isinstance(text, bytes) else str(text) for text in np.ravel(inputs)]
