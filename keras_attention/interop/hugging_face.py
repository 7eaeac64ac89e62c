"""Read folders of Hugging Face: MarianMT (OPUS-MT), M2M-100, NLLB-200, mBART, and our exports.

Shape letters: D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.interop import foreign
from keras_attention.interop.residual_powers import EPSILON, LARGEST_FACTOR, ResidualPowers
from keras_attention.spec import parts
from keras_attention.spec.options import DROPOUTS
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.checks import check_number
from keras_attention.utils.files import DamagedFile, is_inside
from keras_attention.utils.lazily import needed

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
SAFE_WEIGHTS, OLD_WEIGHTS = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"  # of weights in several files
WEIGHT_FILES = (SAFE_WEIGHTS, OLD_WEIGHTS, SAFE_WEIGHTS + INDEX, OLD_WEIGHTS + INDEX)
# Settings that decide what a translation is, and the values with which they do nothing. They are of
# `generate` in transformers; how it searches (`length_penalty`, `early_stopping`) is left to our search.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "forced_bos_token_id": (),
    "forced_decoder_ids": (),
    "begin_suppress_tokens": ([],),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "constraints": ([],),
    "sequence_bias": ([], {}),
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "penalty_alpha": (0,),
    "guidance_scale": (1,),
}
NEVER = -1e9  # The logit's bias of a token that is never produced.
# The types of M2M-100 and NLLB-200, and of mBART, and what their settings are if they are not said.
M2M, MBART = "m2m_100", "mbart"
MULTILINGUAL: dict[str, dict[str, Any]] = {
    M2M: {"activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 1024},
    MBART: {"max_position_embeddings": 1024},
}
MBART_OFFSET = 2  # rows of the table of positions before the first
MOST_POSITIONS = 2**14  # of a table that is computed
# Entry of a config.json that `export_hugging_face` wrote: what the model was trained with.
OWN_SETTINGS = "keras_attention"
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "tanh": "tanh"}
# Weights that are computed, or the same as others.
IGNORED = (
    r".*embed_positions\.weights?|.*embed_tokens\.weight|model\.shared\.weight|lm_head\.weight"
)


def read_hugging_face(folder: Path, positions: str = foreign.POSITIONS[0]) -> TransformerSpec:
    """Read a MarianMT, M2M-100, NLLB-200 or mBART model, or what we exported, without running code.

    Ids are those of the folder. If the padding token, with which decoding starts, has an embedding that is
    not zero, as fine-tuning can make it, then the start token is a further one, with the last id.

    The positions are `"as_trained"`, those of Marian, which trained such models, or
    `"as_transformers"`, those that transformers computes instead, for the translations of transformers.
    Models that `export_hugging_face` wrote were trained with the latter. Those of M2M-100 and NLLB are a
    table, computed for as many positions as the model was made for.
    """
    settings = _settings_of(folder)
    config = settings.path
    kind, own = settings.get("model_type", str), settings.get(OWN_SETTINGS, dict, {})
    if kind not in ("marian", *MULTILINGUAL) and not (kind == "pegasus" and own):
        raise ValueError(
            f"'{config}' describes a model of type {kind!r}. Only 'marian' is read: OPUS-MT and its "
            f"relatives, and what `export_hugging_face` wrote; {M2M!r}: M2M-100 and NLLB-200; and {MBART!r}: "
            "mBART."
        )
    settings.values = {**MULTILINGUAL.get(kind, {}), **settings.values}
    own = foreign.Settings(own, config)
    end = settings.values.get("eos_token_id")
    if isinstance(end, list) and len(end) == 1:
        settings.values["eos_token_id"] = end[0]
    path, weights = _read_weights(folder)
    epsilon = own.get("layer_norm_epsilon", float, EPSILON)
    if (factor := own.get("residual_factor", int, 1)) != 1:
        if factor not in (2**i for i in range(LARGEST_FACTOR.bit_length())):
            raise ValueError(
                f"'{config}': residual_factor must be a power of two, at most {LARGEST_FACTOR}. "
                f"Received: {factor}"
            )
        depth = settings.number("decoder_layers")
        is_tied = settings.get("tie_word_embeddings", bool, True)
        powers = ResidualPowers(depth, is_tied, kind == "pegasus")
        weights = {name: powers.scaled(name, weights[name], 1 / factor) for name in weights}
    arrays = foreign.TorchArrays(weights, lambda problem: ValueError(f"'{path}': {problem}."))
    spec = foreign.checked(_Model(settings, arrays, kind, epsilon).spec, path)
    if kind not in MULTILINGUAL and "as_transformers" in (
        positions,
        own.get("positions", str, positions),
    ):
        spec = foreign.checked(lambda: foreign.as_transformers(spec), path)
    return spec


def _settings_of(folder: Path) -> foreign.Settings:
    """Return the settings of a model, and of its search where a file has them."""
    config, generation = folder / CONFIG_FILE, folder / GENERATION_FILE
    settings = foreign.Settings(foreign.read_foreign_json(config, dict), config)
    if generation.is_file():
        settings.update(foreign.read_foreign_json(generation, dict), generation)
    return settings


def search_options(folder: Path) -> dict[str, Any]:
    """Return the arguments of `Translator` that a folder sets: the size of the beam, and restrictions."""
    settings = _settings_of(folder)
    if settings.values.get("model_type") in MULTILINGUAL:
        settings.values["forced_bos_token_id"] = None  # `target_language` says it.
    for name, neutral in NEUTRAL.items():
        value = settings.values.get(name)
        if value is not None and value not in neutral:
            raise ValueError(
                f"'{settings.place(name)}': translations with {name}={value!r} cannot be searched for. Take "
                "the setting out to translate without."
            )
    options: dict[str, Any] = {}
    if settings.values.get("num_beams") is not None:
        options["beam_size"] = settings.number("num_beams")
    # Lengths of transformers count the start token.
    least = max(0, settings.number("min_length", 0, least=0) - 1)
    size = settings.number("no_repeat_ngram_size", 0, least=0)
    if least or size:
        options["restrictions"] = {"no_repeat_ngram_size": size, "min_length": least}
    return options


def dropouts(folder: Path) -> dict[str, float]:
    """Return the rates of dropout that a folder says, as arguments of `Transformer`."""
    path = folder / CONFIG_FILE
    settings = foreign.read_foreign_json(path, dict)
    return {
        name: check_number(f"{name} in '{path}'", settings[name], 0, below=1)
        for name in DROPOUTS
        if settings.get(name) is not None
    }


def _read_weights(folder: Path) -> tuple[Path, Mapping[str, np.ndarray]]:
    for name, read in ((SAFE_WEIGHTS, _read_safetensors), (OLD_WEIGHTS, _read_pickle)):
        path, index = folder / name, folder / f"{name}{INDEX}"
        if path.is_file():
            return path, read(path)
        if index.is_file():
            return index, _read_parts(index, read)
    there = ", ".join(sorted(file.name for file in folder.iterdir()))
    raise ValueError(
        f"'{folder}' holds no weights. Expected: one of {', '.join(WEIGHT_FILES)}. There are: {there}"
    )


def _read_parts(
    index: Path, read: Callable[[Path], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return weights that are in several files, as their index says."""
    places = foreign.Settings(foreign.read_foreign_json(index, dict), index).get("weight_map", dict)
    files = sorted(map(str, {str(name) for name in places.values()}))
    for name in files:
        if not is_inside(name) or not (index.parent / name).is_file():
            raise DamagedFile(f"'{index}' names {name!r}, which is not there. Download it again.")
    weights: dict[str, np.ndarray] = {}
    for name in files:
        weights |= read(index.parent / name)
    if missing := sorted(places.keys() - weights.keys()):
        raise DamagedFile(
            f"'{index}' names {missing[0]!r}, which no file holds. Download it again."
        )
    return weights


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    message = f"'{path}' is read by safetensors, which is not installed: pip install safetensors"
    library = needed("safetensors", message)
    try:
        with library.safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (library.SafetensorError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedFile(f"'{path}' cannot be read: {error}. Download it again.") from None


def _read_pickle(path: Path) -> dict[str, np.ndarray]:
    torch = needed(
        "torch",
        f"'{path}' is read by PyTorch, which is not installed: pip install torch. A model.safetensors "
        "needs none.",
    )
    try:
        if zipfile.is_zipfile(path):  # Nothing in it may be larger than it is in the file.
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                    raise DamagedFile(f"'{path}' is damaged: its entries are larger than the file.")
        weights = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in weights.items()}
    except DamagedFile:
        raise
    # PyTorch raises errors of many types for bytes that it did not write.
    except Exception as error:
        raise DamagedFile(
            f"'{path}' cannot be read without running code in it: {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}. Download it again, or convert it to "
            f"{SAFE_WEIGHTS}."
        ) from None


class _Model:
    """Makes a spec from weights and settings."""

    def __init__(
        self, settings: foreign.Settings, weights: foreign.TorchArrays, kind: str, epsilon: float
    ) -> None:
        self._settings, self._weights = settings, weights
        self._is_pre_norm, self._epsilon = kind != "marian", epsilon
        self._kind = kind
        self._dim = settings.number("d_model")
        activation = settings.get("activation_function", str, "gelu")
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"'{settings.path}': a model with activation_function={activation!r} cannot be represented; "
                f"read are {list(ACTIVATIONS)}."
            )
        self._activation = ACTIVATIONS[activation]
        for name in ("attention_heads", "ffn_dim"):
            sizes = [settings.number(f"{kind}_{name}") for kind in ("encoder", "decoder")]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"'{settings.path}': encoder_{name} {sizes[0]} and decoder_{name} {sizes[1]} differ, "
                    "which cannot be represented."
                )
        self._heads = settings.number("encoder_attention_heads")

    def spec(self) -> TransformerSpec:
        """Return the whole model, with the positions of its training."""
        settings = self._settings
        pad = settings.number("pad_token_id", least=0)
        end = settings.number("eos_token_id", least=0)
        usual = end if self._kind == MBART else pad
        start = settings.number("decoder_start_token_id", usual, least=0)
        source, target = self._tables(pad)
        output = source if target is None else target
        suppressed = set(self._suppressed())
        if output.logits_bias is not None:
            never = output.logits_bias <= NEVER
            output.logits_bias[never] = 0.0
            suppressed.update(np.flatnonzero(never).tolist())
        if start == pad and pad < len(output.embeddings) and output.embeddings[pad].any():
            row = output.embeddings[pad].copy()
            start = len(output.embeddings)
            suppressed.add(start)
            output = foreign.with_row(output)
            output.embeddings[-1] = row
            source, target = (output, None) if target is None else (source, output)
        encoder, decoder = (self._stack(kind, pad) for kind in ("encoder", "decoder"))
        self._weights.refuse_unread(IGNORED)
        return TransformerSpec(
            source,
            encoder,
            decoder,
            start_token_id=start,
            end_token_id=end,
            target_embedding=target,
            suppressed_token_ids=tuple(sorted(suppressed)),
        )

    def _suppressed(self) -> list[int]:
        """Return the tokens that the settings forbid."""
        words = [
            *self._settings.get("bad_words_ids", list, []),
            *([token] for token in self._settings.get("suppress_tokens", list, [])),
        ]
        for word in words:
            if not (isinstance(word, list) and len(word) == 1 and type(word[0]) is int):
                raise ValueError(
                    f"'{self._settings.place('bad_words_ids')}': bad_words_ids may hold lists of one id, "
                    f"suppress_tokens ids. Received: {word!r}"
                )
        return [word[0] for word in words]

    def _tables(self, pad: int) -> tuple[parts.EmbeddingSpec, parts.EmbeddingSpec | None]:
        """Return the table of the source, and that of the target if it is another."""
        is_one = self._settings.get("share_encoder_decoder_embeddings", bool, True)
        is_tied = self._settings.get("tie_word_embeddings", bool, True)
        names = {kind: [f"model.{kind}.embed_tokens.weight"] for kind in ("encoder", "decoder")}
        softmax = ["lm_head.weight"]
        if is_one and is_tied:
            both = ["model.shared.weight", *names["encoder"], *names["decoder"], *softmax]
            names = dict.fromkeys(names, both)
        elif is_one:  # An untied model of transformers 5 has several tables all the same.
            names = {kind: [*own, "model.shared.weight"] for kind, own in names.items()}
        elif is_tied:
            names["decoder"] += softmax
        table = self._weights.first(names["decoder"])
        reverse = None if is_tied else self._weights.first(softmax).T.copy()
        scale = 1.0
        if not self._settings.get("scale_embedding", bool, False):
            scale = 1.0 / math.sqrt(self._dim)
            reverse = table.T.copy() if reverse is None else reverse
        bias = self._weights.optional("final_logits_bias", 2)
        bias = bias.ravel().copy() if bias is not None and bias.any() else None
        target = parts.EmbeddingSpec(table * np.float32(scale), reverse, bias, pad)
        source = self._weights.first(names["encoder"])
        if is_one and np.array_equal(source, table):
            return target, None
        return parts.EmbeddingSpec(source * np.float32(scale), pad_token_id=pad), target

    def _positions(self, kind: str, pad: int) -> parts.PositionsSpec:
        """Return the positions of a stack: of the multilingual models a table, computed or learned."""
        if self._kind == MBART:
            table = self._weights.array(f"model.{kind}.embed_positions.weight", 2)
            return parts.PositionsSpec("learned", table[MBART_OFFSET:].copy())
        if self._kind != M2M:
            return parts.PositionsSpec("halves")
        # They count from the id behind the padding token's.
        number = min(self._settings.number("max_position_embeddings"), MOST_POSITIONS)
        return parts.PositionsSpec(
            "learned", parts.sinusoid(pad + 1 + np.arange(number), self._dim, "halves")
        )

    def _stack(self, kind: str, pad: int) -> parts.StackSpec:
        depth = self._settings.number(f"{kind}_layers")
        there = self._weights.depth(f"model.{kind}.layers")
        if there != depth:
            raise parts.SpecError(
                f"it has {there} {kind} layers, and its {CONFIG_FILE} says {depth}"
            )
        blocks = tuple(self._block(f"model.{kind}.layers.{i}", kind) for i in range(depth))
        norm = self._norm(f"model.{kind}.layer_norm") if self._is_pre_norm else None
        is_mbart = self._kind == MBART
        embedding_norm = self._norm(f"model.{kind}.layernorm_embedding") if is_mbart else None
        return parts.StackSpec(self._positions(kind, pad), blocks, norm, embedding_norm)

    def _block(self, name: str, kind: str) -> parts.BlockSpec:
        weights = self._weights
        network = parts.FeedForwardSpec(
            weights.dense(f"{name}.fc1"), weights.dense(f"{name}.fc2"), self._activation
        )
        is_decoder = kind == "decoder"
        return parts.BlockSpec(
            self._attention(f"{name}.self_attn"),
            self._norm(f"{name}.self_attn_layer_norm"),
            network,
            self._norm(f"{name}.final_layer_norm"),
            self._attention(f"{name}.encoder_attn") if is_decoder else None,
            self._norm(f"{name}.encoder_attn_layer_norm") if is_decoder else None,
            self._is_pre_norm,
        )

    def _norm(self, name: str) -> parts.NormSpec:
        return self._weights.norm(name, self._epsilon)

    def _attention(self, name: str) -> Any:
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        return foreign.attention_of(
            [self._weights.dense(f"{name}.{part}") for part in names], self._heads
        )
