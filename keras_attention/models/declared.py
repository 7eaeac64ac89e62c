"""From a `Transformer` to its spec, and back."""

from typing import Any

from keras import ops

from keras_attention.layers.declared import declared
from keras_attention.layers.residual import norm_spec
from keras_attention.spec import SpecError, StackSpec, TransformerSpec
from keras_attention.spec.parts import present_value

# The methods that decoding calls.
DECODING_METHODS = (
    "encode",
    "initial_cache",
    "decode_step",
    "_embed",
    "_encode",
    "_add_positions",
    "_run_encoder",
    "_call_block",
    "_project",
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
    has_norms = model.final_normalization, model.embedding_normalization
    norm, embedding_norm = (
        norm_spec(getattr(model, f"{kind}_{name}")) if is_there else None
        for name, is_there in zip(
            ("normalization", "embedding_normalization"), has_norms, strict=True
        )
    )
    return StackSpec(
        positions=declared(model, getattr(model, f"{kind}_positions")),
        blocks=tuple(declared(model, block) for block in getattr(model, f"{kind}_blocks")),
        norm=norm,
        embedding_norm=embedding_norm,
    )


def assign_weights(model: Any, spec: TransformerSpec) -> None:
    """Give a model of the same structure the weights of a spec."""
    own = model.spec().weights()
    for path, weight in spec.weights().items():
        own[path].assign(ops.convert_to_tensor(present_value(weight)))
