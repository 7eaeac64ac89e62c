"""How a model is trained: `compile` with gradient accumulation, and data that is checked first."""

import contextlib
import importlib.util
import inspect
import math
import reprlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_attention.models.accumulated_step import accumulated_train_step, check_rows
from keras_attention.models.compiled_loss import CompiledLoss
from keras_attention.models.guided_alignment import Guided, Head
from keras_attention.models.torch_step import KnownInFit, torch_train_step
from keras_attention.ops.dispatch import backend_choice
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.utils.arguments import Count, Positive, checked
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import static_shape
from keras_attention.utils.forks import unless_forked

KERAS_BATCH_SIZE = 32  # of `fit`, if nothing is said
SAVED_MODEL = "tf_saved_model"  # Keras' format of `export`, if nothing is said
ONNX_PACKAGES = ("onnx", "tf2onnx")  # what TensorFlow's exporter to ONNX imports


class TrainableModel(Guided, keras.Model):
    """A `keras.Model` whose `compile` takes `accumulation_steps`, and which checks what it is given.

    `fit`, `evaluate` and `predict` are Keras' own. They check their data before they begin, and change
    none of their arguments.

    Example:

    >>> import numpy as np
    >>> from keras_attention import LabelSmoothedCrossentropy, Transformer
    >>> model = Transformer(vocabulary_size=11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> model.compile("adam", LabelSmoothedCrossentropy(), accumulation_steps=2)
    >>> source, target = np.array([[5, 6, 1], [4, 1, 0]]), np.array([[0, 7], [0, 8]])
    >>> inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    >>> history = model.fit(inputs, np.array([[7, 1], [8, 1]]), batch_size=2, verbose=0)
    >>> int(model.optimizer.iterations)
    1
    """

    accumulation_steps = 1
    compiled_loss: CompiledLoss | None = None
    _known_in_fit: KnownInFit | None = None

    @checked
    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        accumulation_steps: Count = 1,
        alignment_head: Head | None = None,
        alignment_weight: Positive = 0.05,
        **kwargs: Any,
    ) -> None:
        """Keras' `compile`, with gradient accumulation and guided alignment.

        Args:
            optimizer: As for Keras.
            loss: As for Keras. Accumulation needs a `keras_attention.LabelSmoothedCrossentropy`: the mean
                is over the tokens of the whole update, and a loss that averages each slice cannot give it.
                Of all else that `compute_loss` adds, the mean over the slices counts.
            accumulation_steps: Number of slices A into which each batch is cut. The slices are
                processed one after the other, and one update follows: it needs the memory of B / A rows
                and gives the result of B. The rows of a batch (on each replica) must be a multiple of
                A. Schedules, checkpoints and callbacks see one step.
            alignment_head: Layer and number, from 0, of the head of the cross-attention that learns the
                `"alignments"` of the inputs, as `TokenBatches(..., alignments=...)` has them. It needs a
                loss with `token_count`, such as `LabelSmoothedCrossentropy`. Defaults to none, which
                ignores them.
            alignment_weight: Weight of the loss of the head, the paper's lambda. Defaults to 0.05.
            **kwargs: The other arguments of Keras' `compile`. On PyTorch, `jit_compile=True` makes a
                program of the loss, its gradient and the metrics for each shape of a batch, in about a
                minute; on a CPU, PyTorch needs a C++ compiler. `evaluate` and `predict` are not compiled
                there.

        Raises:
            ValueError: `accumulation_steps` is not a positive integer, or with accumulation: the loss
                is another one, or the optimizer accumulates by itself; loss scaling
                (float16) under a strategy with several replicas; weights in float16; or there is no such
                head, or its weight is not positive.
        """
        head = None if alignment_head is None else self._checked_head(alignment_head, loss)
        _refuse_pure_float16(self.dtype_policy)
        if accumulation_steps > 1:
            _check_loss(loss)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        _check_optimizer(
            self.optimizer, accumulation_steps, getattr(self, "distribute_strategy", None)
        )
        self.accumulation_steps = accumulation_steps
        self.alignment_head, self.alignment_weight = head, float(alignment_weight)
        self.compiled_loss = CompiledLoss()
        self._jit_compile_as_given = kwargs.get("jit_compile", "auto")

    @property
    def slow_batches(self) -> int:
        """How many first batches of each shape take longer: PyTorch compiles at the second, if at all."""
        return 2 if running_backend() == "torch" and self.jit_compile else 1

    def _should_torch_compile(self) -> bool:
        return False  # Keras' `torch.compile` of a whole step stumbles; see `CompiledLoss`.

    def check_data(self, data: Any) -> None:
        """Raise a ValueError for data that the model cannot read. A subclass says what that is.

        Args:
            data: What the model was given: arrays, batches, or tuples, lists and dicts of these.
        """

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `fit`; what `check_data` refuses is refused before the first update."""
        given = inspect.signature(super().fit).bind(x, y, *args, **kwargs).arguments
        validation = given.get("validation_data")
        if isinstance(validation, (list, tuple)):
            validation = validation[:2]  # behind them come weights
        check_some(x)
        _refuse_class_weight(given.get("class_weight"))
        self.check_data([x, y, validation])
        if self.accumulation_steps > 1:
            self._check_rows(x, y, given)
        self._build_optimizer()
        known = backend_choice("Training", torch=KnownInFit, default=None)
        self._known_in_fit = known(self) if known and self.built else None
        if self._known_in_fit is not None and self._known_in_fit.has_no_losses:
            # What each call of a Keras layer begins with, for all layers within it.
            self._clear_losses = lambda: None
        try:
            return super().fit(x, y, *args, **kwargs)
        finally:
            self._known_in_fit = None
            self.__dict__.pop("_clear_losses", None)

    @property
    def losses(self) -> list[Any]:
        """Keras' list of the losses that layers add, which takes long where there are none."""
        known = self._known_in_fit
        return [] if known is not None and known.has_no_losses else super().losses

    @property
    def metrics(self) -> list[Any]:
        """Keras' list of the metrics, for which it asks all layers."""
        known = self._known_in_fit
        return super().metrics if known is None or known.metrics is None else known.metrics

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `train_on_batch`, without `class_weight`, as in `fit`."""
        given = inspect.signature(super().train_on_batch).bind(x, y, *args, **kwargs).arguments
        _refuse_class_weight(given.get("class_weight"))
        return super().train_on_batch(x, y, *args, **kwargs)

    def _check_rows(self, x: Any, y: Any, given: Mapping[str, Any]) -> None:
        """Refuse a batch that cannot be sliced, where the rows of all can be known beforehand."""
        if y is not None and hasattr(y, "shape"):
            size = given.get("batch_size") or KERAS_BATCH_SIZE
            rows = math.floor(len(y) * (1 - given.get("validation_split", 0.0)))
            all_rows = [min(size, rows)]
            if given.get("steps_per_epoch") is None:
                all_rows.append(rows % size)
        elif hasattr(x, "shape_statistics"):
            all_rows = [batch["shape"][0] for batch in x.shape_statistics()]
        else:
            return
        for rows in all_rows:
            check_rows(rows, self.accumulation_steps)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `evaluate`, with the check of `fit`."""
        check_some(x)
        self.check_data([x, y])
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' `predict`, with the check of `fit`."""
        check_some(x)
        self.check_data(x)
        return super().predict(x, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return unless_forked, (make, *arguments)

    def input_signature(self) -> Any:
        """Return the inputs of a model that was built without data, as `keras.InputSpec`s, for `export`."""
        raise NotImplementedError

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Keras' `export`, also of a model that was never called; batches and lengths are free.

        On TensorFlow `format="onnx"` needs `pip install onnx tf2onnx`. JAX writes a `"tf_saved_model"`, for
        which TensorFlow must be installed.

        Raises:
            NotImplementedError: On PyTorch, and on JAX for other formats, whose exporters cannot trace
                the model.
            ImportError: If a package that the format needs is not installed.
        """
        given = inspect.signature(super().export).bind(filepath, *args, **kwargs).arguments
        name = backend_choice("An export", torch="PyTorch", jax="JAX", default=None)
        if name and (name, given.get("format", SAVED_MODEL)) != ("JAX", SAVED_MODEL):
            raise NotImplementedError(
                f"{name}'s exporters cannot trace {type(self).__name__}. Save it by "
                "`model.save('model.keras')`, and export it in a process with "
                "KERAS_BACKEND=tensorflow, after `keras.saving.load_model('model.keras')`."
            )
        missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
        if given.get("format") == "onnx" and missing:
            raise ImportError(
                f"format='onnx' needs {' and '.join(ONNX_PACKAGES)}. Not installed: {', '.join(missing)}. "
                f"Install: pip install {' '.join(missing)}"
            )
        if len(args) < 3:
            kwargs.setdefault("input_signature", [self.input_signature()])
        super().export(filepath, *args, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Keras' `compute_loss`, with the loss of alignments, if there is one."""
        added = self.added_sum(x) if training else None
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if added is None:
            return loss
        return loss + added / self.loss.token_count(y, sample_weight, added.dtype)

    def train_step(self, *args: Any) -> Any:
        """Keras' `train_step`, in slices if compiled so, and of all processes on PyTorch."""
        own = backend_choice("A training step", torch=torch_train_step, default=None)
        if own is not None:
            return own(self, self._known_in_fit, *args)
        if self.accumulation_steps > 1:
            return accumulated_train_step(self, self.accumulation_steps, *args)
        return super().train_step(*args)

    def _build_optimizer(self) -> None:
        """Make the optimizer's variables, if the model is compiled with one and has its own.

        Made within its first update, they would have TensorFlow trace that update twice.
        """
        if not (self.compiled and self.built) or self.optimizer is None or self.optimizer.built:
            return
        strategy = getattr(self, "distribute_strategy", None)  # TensorFlow alone has it
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            self.optimizer.build(self.trainable_variables)

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if not config:
            return config
        # Not what "auto" meant on this backend: another one may load the model.
        config["jit_compile"] = self._jit_compile_as_given
        config["accumulation_steps"] = self.accumulation_steps
        if self.alignment_head is not None:
            config["alignment_head"] = [*self.alignment_head]
            config["alignment_weight"] = self.alignment_weight
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self._build_optimizer()


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, LabelSmoothedCrossentropy):
        raise ValueError(
            "Gradient accumulation needs a loss that can be divided by the tokens of the whole update, so "
            "that each of them weighs the same: use keras_attention.LabelSmoothedCrossentropy "
            "(with label_smoothing=0 for plain cross-entropy), or accumulation_steps=1. Received: "
            f"loss={loss!r}"
        )


def _check_optimizer(optimizer: Any, accumulation_steps: int, strategy: Any) -> None:
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if scales else optimizer
    if accumulation_steps > 1 and getattr(inner, "gradient_accumulation_steps", None):
        raise ValueError(
            "The optimizer accumulates gradients by itself, over updates: leave out its "
            "`gradient_accumulation_steps`, or `accumulation_steps` here."
        )
    # Keras asks the first replica alone whether the gradients are finite, before they are summed.
    if scales and strategy is not None and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "Keras' loss scaling, which dtype 'mixed_float16' brings along, is not right under a "
            "strategy with several replicas: an overflow on one of them is missed. Use "
            "'mixed_bfloat16', which needs none, or one device with `accumulation_steps`."
        )


def _refuse_pure_float16(policy: Any) -> None:
    """Raise a ValueError for weights in float16, in which Adam's epsilon is 0 and training gives NaN."""
    if policy.variable_dtype == "float16":
        raise ValueError(
            "Weights in float16 cannot be trained: an epsilon of 1e-9 is 0 there, and the first update "
            "makes them NaN. Use dtype='mixed_float16', or 'mixed_bfloat16'. Received: dtype="
            f"{policy.name!r}"
        )


def _refuse_class_weight(class_weight: Any) -> None:
    """Raise a ValueError for weights of classes, of which Keras makes one weight a row, by no label of it."""
    if class_weight is not None:
        raise ValueError(
            "`class_weight` is for one label a row. Here each position has one: pass their weights (B, T), "
            "such as `sample_weight=np.vectorize(lambda label: class_weight.get(label, 1.0))(y)`. Received: "
            f"class_weight={reprlib.repr(class_weight)}"
        )


def check_some(x: Any) -> None:
    """Raise a ValueError unless there are data; Keras' own errors do not say that there are none."""
    leaves = keras.tree.flatten(x)
    shapes = (static_shape(leaf) for leaf in leaves if hasattr(leaf, "shape"))
    if all(leaf is None for leaf in leaves) or any(shape and shape[0] == 0 for shape in shapes):
        raise ValueError(f"`x` must hold data, at least one row. Received: x={reprlib.repr(x)}")
