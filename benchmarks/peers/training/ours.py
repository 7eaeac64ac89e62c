"""This package, as `train_translation` runs it: `compile` and `fit` with tuned memory."""

from __future__ import annotations

from typing import Any

from peers.training.keras_fit import KerasProgram
from peers.weights import take


class KerasAttention(KerasProgram):
    """`keras_attention.Transformer` on the backend of `KERAS_BACKEND`.

    Further options: `accumulation_steps`, of its `compile`; `model_options`, more arguments of the model.
    """

    accumulation_steps = 1
    model_options: dict[str, Any] = {}

    def import_libraries(self) -> None:
        super().import_libraries()
        try:
            from keras_attention import HugePages, tune_memory
        except ImportError:  # a checkout of before this was asked for: importing and `fit` did it
            return
        tune_memory()
        self.callbacks = [HugePages()]

    def as_fit_data(self, batches: Any) -> Any:
        try:
            from keras_attention import as_tf_dataset
        except ImportError:  # as above
            return batches
        return as_tf_dataset(batches)

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer

        model = Transformer(**self.sizes.as_options(), **self.model_options, seed=1)
        for weight in model.trainable_weights:
            weight.assign(take(weights, weight.path.removeprefix(f"{model.name}/"), weight.shape))
        model.compile(
            Adam(self.learning_rate),
            LabelSmoothedCrossentropy(self.label_smoothing),
            accumulation_steps=self.accumulation_steps,
            **self.compile_options(),
        )
        return model


class WeightedTransformer(KerasAttention):
    """The same sizes with a branch for each head (Ahmed et al. 2017), from its own random weights."""

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer

        options = {"branch_feed_forward": "shared", **self.model_options}
        model = Transformer(**self.sizes.as_options(), **options, seed=1)
        model.compile(
            Adam(self.learning_rate, simplex_learning_rate=1e-3),
            LabelSmoothedCrossentropy(self.label_smoothing),
            accumulation_steps=self.accumulation_steps,
            **self.compile_options(),
        )
        return model

    def check(self) -> dict[str, float]:
        # Another model: its loss is another.
        return {}
