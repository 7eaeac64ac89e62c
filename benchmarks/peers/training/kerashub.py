"""KerasHub's layers: TransformerEncoder, TransformerDecoder and a tied ReversibleEmbedding."""

from __future__ import annotations

from typing import Any

from peers.training.keras_fit import KerasProgram
from peers.weights import take

# Its names for the weights of a block, in ours.
NAMES = {
    "self_attention_layer/": "self_attention/",
    "self_attention_layer_norm/": "self_attention_residual/normalization/",
    "cross_attention_layer_norm/": "cross_attention_residual/normalization/",
    "feedforward_layer_norm/": "feed_forward_residual/normalization/",
    "feedforward_intermediate_dense/": "feed_forward/inner/",
    "feedforward_output_dense/": "feed_forward/outer/",
}


class KerasHub(KerasProgram):
    """KerasHub on the backend of `KERAS_BACKEND`, Keras' own Adam, the smoothed loss in few operations."""

    def import_libraries(self) -> None:
        super().import_libraries()
        import keras_hub

        self.hub = keras_hub

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        model = self._model()
        for weight in model.trainable_weights:
            name = our_name(weight.path)
            # Attention biases, which the paper's formulas and our model do not have.
            if name in weights or not name.endswith("bias"):
                weight.assign(take(weights, name, weight.shape))
        optimizer = self.keras.optimizers.Adam(self.learning_rate, 0.9, 0.98, 1e-9)
        model.compile(optimizer, self._loss, **self.compile_options())
        return model

    def build(self) -> dict[str, Any]:
        facts = super().build()
        facts["versions"]["keras-hub"] = self.hub.__version__
        facts["differs"] = "its attention has biases (they start at 0), and dropout on the weights"
        return facts

    def _model(self) -> Any:
        keras, layers, sizes = self.keras, self.hub.layers, self.sizes
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")
        embedding = layers.ReversibleEmbedding(
            sizes.vocabulary_size, sizes.hidden_dim, name="token_embedding"
        )
        positions = layers.SinePositionEncoding()

        def embed(ids: Any) -> Any:
            x = embedding(ids) * sizes.hidden_dim**0.5
            return keras.layers.Dropout(sizes.dropout)(x + positions(x))

        block = {
            "intermediate_dim": sizes.intermediate_dim,
            "num_heads": sizes.num_heads,
            "dropout": sizes.dropout,
            "layer_norm_epsilon": 1e-6,
        }
        mask = source != 0
        x = embed(source)
        for number in range(1, sizes.num_layers + 1):
            name = f"encoder_block_{number}"
            x = layers.TransformerEncoder(**block, name=name)(x, padding_mask=mask)
        encoded, x = x, embed(target)
        for number in range(1, sizes.num_layers + 1):
            decoder = layers.TransformerDecoder(**block, name=f"decoder_block_{number}")
            x = decoder(x, encoded, encoder_padding_mask=mask)
        return keras.Model([source, target], embedding(x, reverse=True))

    def _loss(self, labels: Any, logits: Any) -> Any:
        """Ours, from Keras' fused cross-entropy and the mean of the logits: no one-hot labels."""
        ops = self.keras.ops
        size = self.sizes.vocabulary_size
        share = self.label_smoothing * size / (size - 1)  # Ours gives the label itself none of it.
        labels, logits = ops.cast(labels, "int32"), ops.cast(logits, "float32")
        nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        of_label = ops.squeeze(ops.take_along_axis(logits, labels[..., None], axis=-1), -1)
        of_all = nll + of_label - ops.mean(logits, axis=-1)
        real = ops.cast(labels != 0, "float32")
        return ops.sum(((1 - share) * nll + share * of_all) * real) / ops.sum(real)


def our_name(path: str) -> str:
    """Our name of a weight.

    Example:

    >>> our_name("encoder_block_1/feedforward_output_dense/bias")
    'encoder_block_1/feed_forward/outer/bias'
    """
    for theirs, ours in NAMES.items():
        path = path.replace(theirs, ours)
    return path
