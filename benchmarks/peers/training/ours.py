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
        from keras_attention import HugePages, tune_memory

        tune_memory()
        self.callbacks = [HugePages()]

    def as_fit_data(self, batches: Any) -> Any:
        from keras_attention import as_tf_dataset

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
