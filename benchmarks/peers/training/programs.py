"""The programs that train on the batches of a file: Keras' (ours and KerasHub's), and PyTorch's Marian."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from harness.subject import Subject, timed

from peers.marian import marian_model
from peers.training.batches import read_batches, tokens, training_flop
from peers.weights import Sizes, make_weights, take


class Program(Subject):
    """Trains on the batches of a file.

    Args:
        sizes: Arguments of `Sizes`.
        batches: The file of `write_batches`.
        unit: What a sample is: `"update"`, one batch after the other, or `"epoch"`, all of them.
        dtype: `"float32"` or `"mixed_bfloat16"`.
        label_smoothing: The paper's epsilon_ls.
        learning_rate: Constant; it costs the same everywhere.
        **own: What a program adds, as attributes.
    """

    def __init__(
        self,
        sizes: dict[str, Any],
        batches: str,
        unit: str = "update",
        dtype: str = "float32",
        label_smoothing: float = 0.1,
        learning_rate: float = 1e-4,
        **own: Any,
    ) -> None:
        self.sizes, self.unit, self.dtype = Sizes(**sizes), unit, dtype
        self.label_smoothing, self.learning_rate = label_smoothing, learning_rate
        self.batches, _ = read_batches(batches)
        self._next = 0
        for name, value in own.items():
            setattr(self, name, value)
        self.import_libraries()

    def import_libraries(self) -> None:
        """Import what the program needs."""
        raise NotImplementedError

    def build(self) -> dict[str, Any]:
        """Build the model from the common weights; return facts about it."""
        raise NotImplementedError

    def prepare(self) -> dict[str, Any]:
        per_sample = self.batches if self.unit == "epoch" else self.batches[:1]
        work = {
            "tokens": tokens(per_sample),
            "flop": training_flop(self.sizes.as_options(), per_sample),
            "updates": len(per_sample),
        }
        return {**self.build(), "work": work}

    def next_batches(self, count: int) -> list[Any]:
        """Return the batches of the next `count` updates, in a circle over updates of one shape."""
        chosen = [self.batches[(self._next + i) % len(self.batches)] for i in range(count)]
        self._next = (self._next + count) % len(self.batches)
        return chosen


class KerasProgram(Program):
    """A compiled Keras model, trained by `fit`; the subclass makes it.

    A sample is an update, from the end of the batch before it (of the first: its begin) to its own end
    with the loss read, as callbacks see them; or an epoch, the whole of a call of `fit`. `jit_compile` is
    passed to `compile` if it is given.
    """

    jit_compile: Any = None
    callbacks: Sequence[Any] = ()

    def import_libraries(self) -> None:
        import keras

        self.keras, self.backend = keras, keras.backend.backend()
        self.framework = __import__(self.backend)
        if self.backend == "tensorflow":
            self.framework.get_logger().setLevel("ERROR")
        keras.config.set_dtype_policy(self.dtype)

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        """Return the model with these weights, compiled."""
        raise NotImplementedError

    def compile_options(self) -> dict[str, Any]:
        """Return what `compile` is told beyond optimizer and loss."""
        return {} if self.jit_compile is None else {"jit_compile": self.jit_compile}

    def build(self) -> dict[str, Any]:
        self.model = self.compiled_model(make_weights(self.sizes))
        return {
            "backend": self.backend,
            "parameters": self.model.count_params(),
            "jit_compile": bool(self.model.jit_compile),
        }

    def check(self) -> dict[str, float]:
        inputs, labels = _fit_batch(self.batches[0])
        return {"loss": float(self.model.test_on_batch(inputs, labels, return_dict=True)["loss"])}

    def run(self, count: int) -> list[float]:
        if self.unit == "epoch":
            return timed(lambda: self._fit(self.batches), count)
        clock = update_clock(self.keras)
        self._fit(self.next_batches(count), clock)
        return clock.seconds

    def memory(self) -> dict[str, int]:
        if self.backend == "torch":
            return _torch_memory(self.framework)
        if self.backend == "jax":
            peak = (self.framework.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
            return {"device_peak_bytes": peak} if peak else {}
        return {}

    def _fit(self, batches: list[Any], *callbacks: Any) -> None:
        data = self.as_fit_data(_dataset(self.keras, batches))
        self.model.fit(data, shuffle=False, verbose=0, callbacks=[*callbacks, *self.callbacks])

    def as_fit_data(self, batches: Any) -> Any:
        """Return what `fit` is given to read the batches, a `PyDataset`, from."""
        return batches


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
        from keras_attention import Transformer

        model = Transformer(**self.sizes.as_options(), **self.model_options, seed=1)
        for weight in model.trainable_weights:
            weight.assign(take(weights, weight.path.removeprefix(f"{model.name}/"), weight.shape))
        return self._compiled(model)

    def _compiled(self, model: Any, **rates: float) -> Any:
        from keras_attention import Adam, LabelSmoothedCrossentropy

        model.compile(
            Adam(self.learning_rate, **rates),
            LabelSmoothedCrossentropy(self.label_smoothing),
            accumulation_steps=self.accumulation_steps,
            **self.compile_options(),
        )
        return model


class WeightedTransformer(KerasAttention):
    """The same sizes with a branch for each head (Ahmed et al. 2017), from its own random weights."""

    def compiled_model(self, weights: dict[str, Any]) -> Any:
        from keras_attention import WeightedTransformer

        options = {**self.sizes.as_options(), **self.model_options}
        model = WeightedTransformer(**options, seed=1)
        return self._compiled(model, simplex_learning_rate=1e-3)

    def check(self) -> dict[str, float]:
        # Another model: its loss is another.
        return {}


# KerasHub's names for the weights of a block, in ours.
HUB_NAMES = {
    "self_attention_layer/": "self_attention/",
    "self_attention_layer_norm/": "self_attention_residual/normalization/",
    "cross_attention_layer_norm/": "cross_attention_residual/normalization/",
    "feedforward_layer_norm/": "feed_forward_residual/normalization/",
    "feedforward_intermediate_dense/": "feed_forward/inner/",
    "feedforward_output_dense/": "feed_forward/outer/",
}


class KerasHub(KerasProgram):
    """KerasHub's layers on the backend of `KERAS_BACKEND`, Keras' own Adam, the loss in few operations."""

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
        differs = "its attention has biases (they start at 0), and dropout on the weights"
        return {**super().build(), "differs": differs}

    def _model(self) -> Any:
        from keras_hub import layers

        keras, sizes = self.keras, self.sizes
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
        share = _share_of_smoothing(self)
        labels, logits = ops.cast(labels, "int32"), ops.cast(logits, "float32")
        nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        of_label = ops.squeeze(ops.take_along_axis(logits, labels[..., None], axis=-1), -1)
        of_all = nll + of_label - ops.mean(logits, axis=-1)
        real = ops.cast(labels != 0, "float32")
        return ops.sum(((1 - share) * nll + share * of_all) * real) / ops.sum(real)


def our_name(path: str) -> str:
    """Our name of a weight of KerasHub.

    Example:

    >>> our_name("encoder_block_1/feedforward_output_dense/bias")
    'encoder_block_1/feed_forward/outer/bias'
    """
    for theirs, ours in HUB_NAMES.items():
        path = path.replace(theirs, ours)
    return path


class Marian(Program):
    """Hugging Face's `MarianMTModel` in the loop that everybody writes, with the fused Adam and autocast.

    A sample is an update with the loss read at its end, or an epoch with it read once. A further option:
    `jit_compile`, for `torch.compile`.
    """

    jit_compile = False

    def import_libraries(self) -> None:
        import torch
        import transformers  # noqa: F401

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def build(self) -> dict[str, Any]:
        longest = max(max(source.shape[1], labels.shape[1]) for source, _, labels in self.batches)
        weights = make_weights(self.sizes)
        self.model = marian_model(self.sizes.as_options(), weights, max(512, longest))
        self.model.to(self.device)
        self.forward = self.torch.compile(self.model) if self.jit_compile else self.model
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = self.torch.optim.Adam(
            parameters, self.learning_rate, (0.9, 0.98), 1e-9, fused=True
        )
        return {
            "backend": "torch",
            "parameters": sum(p.numel() for p in parameters),
            "threads": self.torch.get_num_threads(),
            "attention": self.model.config._attn_implementation,
            "differs": "its attention has biases (they start at 0)",
        }

    def check(self) -> dict[str, float]:
        self.model.eval()
        with self.torch.no_grad():
            return {"loss": float(self._loss(self.batches[0]))}

    def run(self, count: int) -> list[float]:
        self.model.train()
        if self.unit == "epoch":
            return timed(lambda: self._train(self.batches), count)
        batches = iter(self.next_batches(count))
        return timed(lambda: self._train([next(batches)]), count)

    def memory(self) -> dict[str, int]:
        return _torch_memory(self.torch)

    def _train(self, batches: Sequence[Any]) -> None:
        for batch in batches:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self._loss(batch)
            loss.backward()
            self.optimizer.step()
        loss.item()  # Waits for the device.
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _loss(self, batch: Any) -> Any:
        torch = self.torch
        source, decoder, labels = (torch.from_numpy(a).long().to(self.device) for a in batch)
        autocast: Any = contextlib.nullcontext()
        if self.dtype == "mixed_bfloat16":
            autocast = torch.autocast(self.device, torch.bfloat16)
        with autocast:
            logits = self.forward(
                input_ids=source,
                attention_mask=(source != 0).long(),
                decoder_input_ids=decoder,
                use_cache=False,
            ).logits
            return torch.nn.functional.cross_entropy(
                logits.view(-1, self.sizes.vocabulary_size),
                labels.view(-1),
                ignore_index=0,
                label_smoothing=_share_of_smoothing(self),
            )


def _share_of_smoothing(program: Program) -> float:
    """Return the share as others count it: ours gives the label itself none of it."""
    size = program.sizes.vocabulary_size
    return program.label_smoothing * size / (size - 1)


def _torch_memory(torch: Any) -> dict[str, int]:
    on_gpu = torch.cuda.is_available()
    return {"device_peak_bytes": torch.cuda.max_memory_allocated()} if on_gpu else {}


def update_clock(keras: Any) -> Any:
    """Return a callback of `fit` that notes the `seconds` of each update."""

    class Clock(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if not self.seconds:
                self.before = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            float(logs["loss"])  # Waits for the device.
            now = time.perf_counter()
            self.seconds.append(now - self.before)
            self.before = now

    return Clock()


def _fit_batch(batch: Any) -> tuple[dict[str, Any], Any]:
    source, decoder, labels = batch
    return {"encoder_token_ids": source, "decoder_token_ids": decoder}, labels


def _dataset(keras: Any, batches: list[Any]) -> Any:
    tensors = keras.tree.map_structure(
        lambda array: keras.KerasTensor((None, None), array.dtype.name), _fit_batch(batches[0])
    )

    class FixedBatches(keras.utils.PyDataset):
        signature = tensors  # As `TokenBatches` has it, for `as_tf_dataset`.

        def __len__(self) -> int:
            return len(batches)

        def __getitem__(self, index: int) -> Any:
            return _fit_batch(batches[index])

    return FixedBatches()
