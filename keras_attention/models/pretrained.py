"""How a `Transformer` is made from a size, a pretrained model, a spec, or PyTorch's weights; and its spec."""

import os
from collections.abc import Mapping
from typing import Any, Self, cast

from keras import ops

from keras_attention.data.presets import catalogue, is_preset, load
from keras_attention.interop.foreign import POSITIONS
from keras_attention.interop.torch_transformer import read_torch
from keras_attention.layers.declared import declared
from keras_attention.layers.residual import norm_spec
from keras_attention.spec import EmbeddingSpec, NormSpec, SpecError, StackSpec, TransformerSpec
from keras_attention.spec.parts import as_array, present_value
from keras_attention.spec.presets import preset_arguments


class Pretrained:
    """Class methods of `Transformer` that make one."""

    @classmethod
    def base(cls, vocabulary_size: int = 37000, **kwargs: Any) -> Self:
        """Build the paper's base model (Table 3, first row), by default with its 37,000 tokens."""
        return cls.from_preset("base", vocabulary_size=vocabulary_size, **kwargs)

    @classmethod
    def big(cls, vocabulary_size: int = 37000, **kwargs: Any) -> Self:
        """Return the paper's big model (Table 3, last row)."""
        return cls.from_preset("big", vocabulary_size=vocabulary_size, **kwargs)

    @classmethod
    def presets(cls) -> dict[str, dict[str, Any]]:
        """Return what is known of pretrained models: the package's own, and public ones.

        Returns:
            By the handle for `from_preset`, or the address of files that are downloaded and unpacked first:
            a dict with `languages`, `family`, `parameters`, `license`, `published` (the score that its maker
            has published) and `source` (where the list of its files stands, by which its format was
            checked); None for what that does not say.

        Example:

        >>> from keras_attention.models.transformer import Transformer
        >>> Transformer.presets()["demo_en_de"]["languages"]
        'en-de'
        """
        return catalogue()

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        vocabulary_size: int | None = None,
        *,
        positions: str = POSITIONS[0],
        **kwargs: Any,
    ) -> Self:
        """Build an untrained model of a named size, or a pretrained model with its weights.

        Args:
            preset: A key of `keras_attention.PRESETS`: `"base"`, `"big"`, a row of Table 3, or a size for
                small corpora, `"small"` or `"tiny"`. Or a pretrained model: `"demo_en_de"`, a folder, such as
                that of a run, or a handle such as `"hf://Helsinki-NLP/opus-mt-en-de"`; see
                `Translator.from_preset`.
            vocabulary_size: Number of tokens V of an untrained model.
            positions: Of a pretrained model; see `Translator.from_preset`. Defaults to `"as_trained"`.
            **kwargs: Arguments of `Transformer` that replace those of the preset. A pretrained model takes
                those that are not in its spec, such as `dropout` and `dtype`.

        Raises:
            ValueError: If there is no such preset, or `vocabulary_size` is missing, or given for a
                pretrained model, which has its own.

        Example:

        >>> from keras_attention.models.transformer import Transformer
        >>> model = Transformer.from_preset("tiny", vocabulary_size=100, num_layers=1)
        >>> model.hidden_dim, model.num_layers
        (128, 1)
        """
        if is_preset(preset):
            if vocabulary_size is not None:
                raise ValueError(
                    "`vocabulary_size` is for untrained models; a pretrained one has its own. Leave it out. "
                    f"Received: preset={preset!r}, vocabulary_size={vocabulary_size!r}"
                )
            found = load(preset, positions)
            return cls.from_spec(found.spec, **{**found.model_options, **kwargs})
        arguments = preset_arguments(cast(str, preset))
        if vocabulary_size is None:
            raise ValueError(
                "`vocabulary_size` is missing: an untrained model needs that of its tokenizer. Received: "
                f"preset={preset!r}"
            )
        return cast(Any, cls)(vocabulary_size=vocabulary_size, **{**arguments, **kwargs})

    @classmethod
    def from_torch(
        cls,
        state_dict: Mapping[str, Any],
        num_heads: int,
        embeddings: Any,
        *,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build a model with the weights of PyTorch's `torch.nn.Transformer`.

        Args:
            state_dict: `model.state_dict()` of the `torch.nn.Transformer`.
            num_heads: Its `nhead`.
            embeddings: The table (V, D) for source, target and softmax, or an `EmbeddingSpec`.
            options: What a state dict does not say; see `interop.torch_transformer.read_torch`:
                `normalize_first`, `activation`, `positions`, `target_embedding` and others.
            **kwargs: Arguments of `Transformer` that are not in a spec, such as `dropout` and `dtype`.

        Raises:
            ValueError: If a weight is missing, or they do not fit together.
        """
        if not isinstance(embeddings, EmbeddingSpec):
            embeddings = EmbeddingSpec(as_array(embeddings))
        return cls.from_spec(
            read_torch(state_dict, embeddings, num_heads, **(options or {})), **kwargs
        )

    @classmethod
    def from_spec(cls, spec: TransformerSpec, **kwargs: Any) -> Self:
        """Build a model from a spec, with its weights.

        Args:
            spec: A complete `TransformerSpec`; its weights are copied.
            **kwargs: Arguments of `Transformer` that are not in a spec, such as `dropout`, `recompute`,
                `seed`, `name` and `dtype`.

        Raises:
            SpecError: If the spec is incomplete, or no `Transformer` can be built from it.
            ValueError: If an argument is another than the spec's, whose weights would compute something else.

        Example:

        >>> from keras_attention.models.transformer import Transformer
        >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
        >>> copy = Transformer.from_spec(model.spec(), dropout=0.3)
        >>> copy.num_heads, copy.dropout
        (2, 0.3)
        """
        spec.validate()
        options = spec.options()
        layers, given = options["num_layers"], kwargs.get("num_layers")
        if isinstance(given, list | tuple) and (*given,) in ((layers, layers), layers):
            kwargs["num_layers"] = layers  # one number for two equal ones
        if other := [name for name in kwargs if options.get(name, kwargs[name]) != kwargs[name]]:
            raise ValueError(
                f"`{other[0]}` is {options[other[0]]!r} in the model whose weights are taken, which with "
                "another value would compute something else. Leave it out. Received: "
                f"{other[0]}={kwargs[other[0]]!r}"
            )
        model = cast(Any, cls)(**{**options, **kwargs})
        assign_weights(model, spec)
        return model


# The methods that decoding calls.
DECODING_METHODS = (
    *("encode", "initial_cache", "decode_step", "_embed", "_encode", "_add_positions"),
    *("_run_encoder", "_call_block", "_project"),
)


def declared_transformer(model: Any, defining_class: type) -> TransformerSpec:
    """Return the spec of a model, as `Transformer.spec` does; `defining_class` is `Transformer`."""
    for name in DECODING_METHODS:
        changed = getattr(type(model), name) is not getattr(defining_class, name)
        if changed and "spec" not in vars(type(model)):
            raise SpecError(
                f"{type(model).__name__} overrides `{name}` without a `spec()` that describes what it "
                "computes."
            )
    target = model.target_embedding
    spec = TransformerSpec(
        embedding=declared(model, model.token_embedding),
        target_embedding=target and declared(model, target),
        encoder=_stack(model, "encoder"),
        decoder=_stack(model, "decoder"),
        start_token_id=model.start_token_id,
        end_token_id=model.end_token_id,
        suppressed_token_ids=model.suppressed_token_ids,
        dtype=model.compute_dtype,
    )
    spec.validate()
    return spec


def _stack(model: Any, kind: str) -> StackSpec:
    def norm(name: str, is_there: bool) -> NormSpec | None:
        return norm_spec(getattr(model, f"{kind}_{name}")) if is_there else None

    return StackSpec(
        positions=declared(model, getattr(model, f"{kind}_positions")),
        blocks=tuple(declared(model, block) for block in getattr(model, f"{kind}_blocks")),
        norm=norm("normalization", model.final_normalization),
        embedding_norm=norm("embedding_normalization", model.embedding_normalization),
    )


def assign_weights(model: Any, spec: TransformerSpec) -> None:
    """Give a model of the same structure the weights of a spec."""
    own = model.spec().weights()
    for path, weight in spec.weights().items():
        own[path].assign(ops.convert_to_tensor(present_value(weight)))
