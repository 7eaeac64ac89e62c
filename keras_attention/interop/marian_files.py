"""The files of a folder that say what MarianMT has beside the weights: settings and vocabularies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from keras_attention.interop.export_folder import Languages
from keras_attention.interop.hugging_face import CONFIG_FILE, GENERATION_FILE, OWN_SETTINGS
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.sides import unknown_of

# Name of an activation in a spec -> its name in transformers.
ACTIVATIONS = {"relu": "relu", "silu": "swish", "gelu": "gelu", "tanh": "tanh"}
# Names that MarianTokenizer and CTranslate2's converter expect of the first two pieces and the last one.
END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


def is_marian_tokenizer(tokenizer: Any) -> bool:
    """Whether `MarianTokenizer` can give the same ids: it splits by SentencePiece and adds the end token."""
    models: Any = getattr(tokenizer, "sentence_piece_models", dict)()
    return len(models) == 2 and tokenizer.ends_source


class MarianFiles:
    """The files of a folder that say what MarianMT has beside the weights: settings and vocabularies.

    Args:
        spec: The model.
        tokenizer: Its tokenizer, of which `is_marian_tokenizer` is true.
        keeps_ids: Whether ids stay as they are. Defaults to False: ids of OPUS-MT, which programs expect that
            read the weights, too.
    """

    def __init__(self, spec: TransformerSpec, tokenizer: Any, keeps_ids: bool = False) -> None:
        self._options = spec.options()
        self._models = tokenizer.sentence_piece_models()
        self._has_two = spec.target_embedding is not None
        self._depths = (len(spec.encoder.blocks), len(spec.decoder.blocks))
        pad, end, start = spec.pad_token_id, spec.end_token_id, spec.start_token_id
        has_logit = pad not in spec.suppressed_token_ids
        sides = ("source", "target") if self._has_two else ("target",)
        self._ids: list[list[int | None]] = []
        for side in sides:
            size = spec.vocabulary_size if side == "source" else spec.target_vocabulary_size
            first = [end, unknown_of(tokenizer, side)]
            rest = [i for i in range(size) if i not in (*first, pad)]
            order = [*first, *rest, *[pad] * (side == "target" and has_logit)]
            self._ids.append([*range(size)] if keeps_ids else [*order])
        if not keeps_ids:
            # One id of padding for both sides: the shorter vocabulary is filled up.
            size = max(map(len, self._ids)) + 1
            self._ids = [[*ids, *[None] * (size - len(ids))] for ids in self._ids]
        new_ids = {old: new for new, old in enumerate(self._ids[-1]) if old is not None}
        self._pad = pad if keeps_ids else len(self._ids[0]) - 1
        self._end = new_ids[end]
        self._start = self._pad if start == pad else new_ids[start]
        files = ("vocab.json", "target_vocab.json")
        self._vocabularies = {
            name: {piece: i for i, piece in enumerate(self._pieces(ids, tokenizer, side, pad))}
            for name, ids, side in zip(files, self._ids, sides, strict=False)
        }
        never = [new_ids[i] for i in spec.suppressed_token_ids if keeps_ids or i != pad]
        never += [i for i, old in enumerate(self._ids[-1]) if old is None]
        self._never = sorted(set(never))

    def _pieces(self, ids: list[int | None], tokenizer: Any, side: str, pad: int) -> list[str]:
        """Return the piece of each new id; those that no text has get names of their own."""
        special = {
            self._end: END,
            ids.index(unknown_of(tokenizer, side)): UNKNOWN,
            self._pad: PADDING,
        }
        taken = {tokenizer.id_to_token(i, side) for i in ids if i is not None}
        pieces: list[str] = []
        for new, old in enumerate(ids):
            name = f"<unused-{new}>"
            while name in taken:
                name += "_"
            if old is not None and old != pad:
                own = tokenizer.id_to_token(old, side)
                name = name if own in special.values() else own
            pieces.append(special.get(new, name))
        return pieces

    def write(
        self, folder: Path, beam_size: int, max_length: int, languages: Languages = None
    ) -> None:
        """Write the settings, the vocabularies and the SentencePiece models."""
        for side, content in self._models.items():
            (folder / f"{side}.spm").write_bytes(content)
        for name, settings in {
            CONFIG_FILE: self._config(max_length),
            GENERATION_FILE: self._search(beam_size, max_length),
            "tokenizer_config.json": self._tokenizer_config(max_length, languages),
            **self._vocabularies,
        }.items():
            text = json.dumps(settings, ensure_ascii=False, indent=1)
            (folder / name).write_text(text, encoding="utf-8")

    def _config(self, max_length: int) -> dict[str, Any]:
        options, stacks = self._options, {}
        for kind, depth in zip(("encoder", "decoder"), self._depths, strict=True):
            stacks[f"{kind}_layers"] = depth
            stacks[f"{kind}_attention_heads"] = options["num_heads"]
            stacks[f"{kind}_ffn_dim"] = options["intermediate_dim"]
        is_pegasus = options["normalize_first"]
        kind = "PegasusForConditionalGeneration" if is_pegasus else "MarianMTModel"
        return {
            "architectures": [kind],
            "model_type": "pegasus" if is_pegasus else "marian",
            "vocab_size": len(self._ids[0]),
            "decoder_vocab_size": len(self._ids[-1]),
            "d_model": options["hidden_dim"],
            **stacks,
            "activation_function": ACTIVATIONS.get(options["activation"], options["activation"]),
            "scale_embedding": True,
            "static_position_embeddings": True,
            "max_position_embeddings": max_length,
            # CTranslate2's converter asks models of both kinds for these two.
            "normalize_before": is_pegasus,
            "normalize_embedding": False,
            "share_encoder_decoder_embeddings": not self._has_two,
            "tie_word_embeddings": options["tie_weights"],
            "is_encoder_decoder": True,
            **self._special_ids(),
            "torch_dtype": "float32",
            OWN_SETTINGS: {
                "positions": "as_transformers",
                "layer_norm_epsilon": options["layer_norm_epsilon"],
            },
        }

    def _search(self, beam_size: int, max_length: int) -> dict[str, Any]:
        return {
            "num_beams": beam_size,
            "max_length": max_length,
            "bad_words_ids": [[i] for i in self._never],
            **self._special_ids(),
        }

    def _special_ids(self) -> dict[str, int]:
        return {
            "pad_token_id": self._pad,
            "eos_token_id": self._end,
            "forced_eos_token_id": self._end,
            "decoder_start_token_id": self._start,
        }

    def _tokenizer_config(self, max_length: int, languages: Languages) -> dict[str, Any]:
        return {
            "tokenizer_class": "MarianTokenizer",
            "eos_token": END,
            "unk_token": UNKNOWN,
            "pad_token": PADDING,
            "separate_vocabs": self._has_two,
            **dict(zip(("source_lang", "target_lang"), languages or (), strict=False)),
            "model_max_length": max_length,
        }
