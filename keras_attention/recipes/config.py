"""What decides the result of a run, besides the corpus."""

import dataclasses
from typing import Any

from keras_attention.training.distribution import STRATEGIES

BUDGET = ("steps", "minutes")
# What may change between two starts of a run: how long it trains, and on what hardware.
RESUMABLE_FIELDS = (*BUDGET, "strategy", "replicas", "accumulation_steps", "recompute")


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """Everything that decides the result of a run, besides the corpus.

    Attributes:
        preset: Size of the model, a name in `keras_attention.PRESETS`.
        model_arguments: Arguments of `Transformer` that replace the preset's.
        vocabulary_size: Word-pieces of the shared vocabulary.
        tokenizer_algorithm: `"bpe"`, or `"wordpiece"` as in the paper's English-French.
        bpe_dropout: Probability with which BPE skips a merge in the training text, which is cut anew
            `bpe_samples` times; it makes more tokens of it.
        bpe_samples: So many epochs pass before a sentence is cut as it was before.
        batch_tokens: Positions of a batch on either side, padding included.
        max_length: Pairs with more tokens on a side, end token included, are left out of training.
        max_shapes: Most different shapes of batches. Fewer are compiled sooner, but pad more.
        strategy: How several devices share a batch: None, `"mirrored"` or `"data_parallel"`.
        replicas: Number of devices; None for all that there are, if there is a strategy.
        accumulation_steps: Parts that a batch is computed in, one after the other, to need less memory.
        recompute: Whether blocks are computed again in the backward pass, to need less memory.
        row_multiple: Sentences of a batch are a multiple of it. All numbers of replicas and parts whose
            product divides it train on the same batches; for another it is raised.
        steps: Most optimizer updates; None for no limit.
        minutes: Most minutes of training; None for no limit.
        warmup_steps: Updates until the peak of the learning rate.
        learning_rate_factor: Factor of the paper's learning rate.
        peak_learning_rate: If given, in place of the paper's learning rate: it rises to this in
            `warmup_steps` and falls as half a cosine to 0 at the end of the budget. With `minutes`
            it depends on the machine's pace; with `steps` alone a run can be repeated exactly.
        label_smoothing: The paper's epsilon_ls.
        checkpoint_minutes: Minutes between two checkpoints; None for one an epoch, and every ten minutes
            one that is not averaged, but gone on from.
        checkpoint_updates: Updates between two checkpoints that are averaged, in place of minutes.
        averaged_checkpoints: How many of the last checkpoints are averaged.
        bleu_every: Epochs between two BLEU scores of the validation set during training.
        beam_size: Hypotheses kept in the search.
        length_penalty: The paper's alpha.
        dtype: A Keras dtype policy: `"float32"`, or `"mixed_bfloat16"` on hardware that has it.
        seed: Decides initial weights, dropout and the order of batches.
    """

    preset: str = "tiny"
    model_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    vocabulary_size: int = 8000
    tokenizer_algorithm: str = "bpe"
    bpe_dropout: float = 0.0
    bpe_samples: int = 8
    batch_tokens: int = 4096
    max_length: int = 256
    max_shapes: int = 24
    strategy: str | None = None
    replicas: int | None = None
    accumulation_steps: int = 1
    recompute: bool = False
    row_multiple: int = 8
    steps: int | None = None
    minutes: float | None = None
    warmup_steps: int = 4000
    learning_rate_factor: float = 1.0
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    checkpoint_minutes: float | None = None
    checkpoint_updates: int | None = None
    averaged_checkpoints: int = 5
    bleu_every: int = 5
    beam_size: int = 4
    length_penalty: float = 0.6
    dtype: str = "float32"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("Training needs an end: give `steps`, `minutes` or both.")
        for name in (
            "steps",
            "minutes",
            "checkpoint_minutes",
            "checkpoint_updates",
            "replicas",
            "accumulation_steps",
            "row_multiple",
            "peak_learning_rate",
            "bpe_samples",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        if self.checkpoint_minutes is not None and self.checkpoint_updates is not None:
            raise ValueError(
                "Checkpoints are so many minutes or so many updates apart. Received: "
                f"checkpoint_minutes={self.checkpoint_minutes}, "
                f"checkpoint_updates={self.checkpoint_updates}"
            )
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(
                f"`bpe_dropout` must lie in [0, 1). Received: bpe_dropout={self.bpe_dropout!r}"
            )
        if self.bpe_dropout and self.tokenizer_algorithm != "bpe":
            raise ValueError(
                f"`bpe_dropout` ({self.bpe_dropout}) needs tokenizer_algorithm 'bpe'. "
                f"Received: tokenizer_algorithm={self.tokenizer_algorithm!r}"
            )
        if self.strategy not in (None, *STRATEGIES):
            raise ValueError(
                f"`strategy` must be one of {[None, *STRATEGIES]}. "
                f"Received: strategy={self.strategy!r}"
            )
        if self.strategy is None and self.replicas not in (None, 1):
            raise ValueError(
                f"`replicas` ({self.replicas}) needs a `strategy`: 'mirrored' on TensorFlow, "
                "'data_parallel' on JAX."
            )
