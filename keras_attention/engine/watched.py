"""What a spec's attention does on given translations, in NumPy: for pictures of a model without Keras.

The whole translation is one step of a search, whose beams are the positions: a bias hides from each position
the later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_attention.engine.forward import ForwardEngine, Step, decode
from keras_attention.engine.numpy import ACTIVATIONS, NumPyOperations
from keras_attention.spec import AttentionSpec, TransformerSpec


class WatchedOperations(NumPyOperations):
    """Operations that keep the weights and the values of each attention, in the order of the blocks."""

    def __init__(self, spec: TransformerSpec):
        super().__init__(spec, "float32")
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        weights = self.ops.softmax(query @ key.transpose(0, 1, 3, 2) + bias, axis=-1)
        self.seen.append((weights, value))
        outputs = (weights @ value).transpose(0, 2, 1, 3)
        return outputs.reshape(-1, self.spec.num_heads * self.spec.value_dim)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        return new

    def cell(self, projected: Any, state: Any, parents: Any) -> Any:
        # The positions follow one another.
        inputs, gates = np.split(projected.reshape(*state.shape[:2], -1), 2, axis=-1)
        forget = self.ops.sigmoid(gates)
        states, last = np.empty_like(state), np.zeros_like(state[:, 0])
        for t in range(state.shape[1]):
            last = forget[:, t] * last + (1 - forget[:, t]) * inputs[:, t]
            states[:, t] = last
        return states

    def activation(self, name: str) -> Callable[[Any], Any]:
        if name in ACTIVATIONS:
            return ACTIVATIONS[name]
        import keras

        function = keras.activations.get(name)
        return lambda x: keras.ops.convert_to_numpy(function(keras.ops.convert_to_tensor(x)))


class WatchedSpec:
    """A model that only shows its attention: `attention_scores` and `attention_details` of a `Transformer`.

    Args:
        spec: The model. Its weights are read once.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> scores = WatchedSpec(model.spec()).attention_scores(np.array([[5, 6, 1]]), np.array([[0, 7]]))
    >>> {kind: [layer.shape for layer in layers] for kind, layers in scores.items()}
    {'encoder': [(1, 2, 3, 3)], 'decoder': [(1, 2, 2, 2)], 'cross': [(1, 2, 2, 3)]}
    """

    def __init__(self, spec: TransformerSpec):
        self.spec = spec
        self.max_length = spec.max_length
        self._operations = WatchedOperations(spec)
        self._engine = ForwardEngine(spec, "float32", self._operations)
        self._engine.read_weights()

    def attention_scores(
        self, encoder_token_ids: np.ndarray, decoder_token_ids: np.ndarray
    ) -> dict[str, list[np.ndarray]]:
        """Return what `Transformer.attention_scores` returns, as arrays."""
        return self.attention_details(encoder_token_ids, decoder_token_ids)[0]

    def attention_details(
        self, encoder_token_ids: np.ndarray, decoder_token_ids: np.ndarray, rows: int | None = None
    ) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]], np.ndarray]:
        """Return what `Transformer.attention_details` returns, as arrays."""
        operations = self._operations
        operations.seen = []
        source, target = (
            self._engine.positions(kind, ids.shape[1])
            for kind, ids in (("encoder", encoder_token_ids), ("decoder", decoder_token_ids))
        )
        memory = self._engine.encode(encoder_token_ids, source)
        is_seen = np.tri(len(target), dtype=bool)
        bias = np.where(is_seen, 0.0, operations.masked).astype("float32")[None, None]
        nothing = np.zeros((*decoder_token_ids.shape, self.spec.hidden_dim), "float32")
        buffers = [(nothing, nothing)] * len(self.spec.decoder.blocks)
        step = Step(decoder_token_ids, target, 0, bias)
        (logits, _), _ = decode(operations, self._engine.weights, step, buffers, *memory, None)
        logits = logits.reshape(*decoder_token_ids.shape, -1)
        scores: dict[str, list[np.ndarray]] = {}
        norms: dict[str, list[np.ndarray]] = {}
        for (kind, attention), (weights, value) in zip(
            self._attentions(), operations.seen, strict=True
        ):
            scores.setdefault(kind, []).append(weights)
            made = value[:rows] @ np.asarray(attention.output.kernel, "float32")
            norms.setdefault(kind, []).append(np.linalg.norm(made, axis=-1))
        return scores, norms, logits[:rows]

    def _attentions(self) -> list[tuple[str, Any]]:
        """Return each attention and its kind, in the order in which they are computed."""
        found: list[tuple[str, Any]] = [
            ("encoder", block.self_attention) for block in self.spec.encoder.blocks
        ]
        for block in self.spec.decoder.blocks:
            if isinstance(block.self_attention, AttentionSpec):
                found.append(("decoder", block.self_attention))
            found.append(("cross", block.cross_attention))
        return found
