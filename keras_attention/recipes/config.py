"""What decides the result of a run, besides the corpus."""

import dataclasses
from typing import Any, Literal, get_args

from keras_attention.utils.checks import (
    check_boolean,
    check_has,
    check_integer,
    check_number,
    check_text,
)

BUDGET = ("steps", "minutes")
# What may change between two starts of a run: how long it trains, on what hardware, and what is logged.
RESUMABLE_FIELDS = (
    *BUDGET,
    "patience",
    "strategy",
    "replicas",
    "accumulation_steps",
    "recompute",
    "attention_images",
)


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """Everything that decides the result of a run, besides the corpus.

    Attributes:
        preset: Size of the model: tiny, small, medium, base, big, big_en_fr, or a row of the paper's
            Table 3, such as table3_a_heads_1.
        model_arguments: Arguments of `Transformer` that replace the preset's.
        vocabulary_size: Word-pieces of the vocabulary that source and target share.
        tokenizer_algorithm: How words are cut: bpe, or wordpiece as in the paper's English-French.
        bpe_dropout: Probability with which BPE skips a merge in the training text, which is cut anew
            `bpe_samples` times; for little text.
        bpe_samples: Epochs until a sentence is cut as it was before, with BPE dropout.
        batch_tokens: Positions of a batch on either side, padding included.
        max_length: Pairs with more tokens on a side, end token included, are left out of training.
        max_shapes: Most different shapes of batches. Fewer are compiled sooner, but pad more.
        strategy: How several devices share a batch: none, mirrored (TensorFlow's GPUs) or
            data_parallel (JAX' devices, or the processes that PyTorch's torchrun starts).
        replicas: Number of devices; none for all that there are, if there is a strategy.
        accumulation_steps: Parts that a batch is computed in, one after the other, to need less memory.
        recompute: Whether blocks are computed again in the backward pass: less memory, a third more work.
        row_multiple: Sentences of a batch are a multiple of it. All numbers of replicas and parts whose
            product divides it train on the same batches; for another it is raised.
        steps: Most updates of the optimizer; none for no limit.
        minutes: Most minutes of training, without compiling and validation; none for no limit.
        patience: Epochs without a better perplexity of the validation set after which training stops;
            none for training to the end of the budget.
        warmup_steps: Updates until the peak of the learning rate.
        learning_rate_factor: Factor of the paper's learning rate.
        peak_learning_rate: The highest learning rate, in place of the paper's schedule: the rate rises
            to it in `warmup_steps` updates and falls as half a cosine to 0 at the end of the budget.
            With `minutes` it depends on the machine's pace; with `steps` alone, and checkpoints that
            are not averaged by the minute, a run can be repeated exactly.
        label_smoothing: The paper's epsilon_ls.
        checkpoint_minutes: Minutes between two checkpoints; none for one an epoch, and every ten
            minutes one that is not averaged, but gone on from.
        checkpoint_updates: Updates between two checkpoints that are averaged, in place of minutes.
        averaged_checkpoints: How many of the last checkpoints are averaged.
        bleu_every: Epochs between two BLEU scores of the validation set during training.
        attention_images: Whether heat maps of a sentence's attention are logged as pictures, too.
        beam_size: Hypotheses kept in the search.
        length_penalty: The paper's alpha: the higher, the longer the translations.
        dtype: Keras' dtype policy: float32, or mixed_bfloat16 on hardware that has it.
        seed: Decides initial weights, dropout and the order of batches.
    """

    preset: str = "tiny"
    model_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    vocabulary_size: int = 8000
    tokenizer_algorithm: Literal["bpe", "wordpiece"] = "bpe"
    bpe_dropout: float = 0.0
    bpe_samples: int = 8
    batch_tokens: int = 4096
    max_length: int = 256
    max_shapes: int = 24
    strategy: Literal["mirrored", "data_parallel"] | None = None
    replicas: int | None = None
    accumulation_steps: int = 1
    recompute: bool = False
    row_multiple: int = 8
    steps: int | None = None
    minutes: float | None = None
    patience: int | None = None
    warmup_steps: int = 4000
    learning_rate_factor: float = 1.0
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    checkpoint_minutes: float | None = None
    checkpoint_updates: int | None = None
    averaged_checkpoints: int = 5
    bleu_every: int = 5
    attention_images: bool = False
    beam_size: int = 4
    length_penalty: float = 0.6
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("Training needs an end: give `steps`, `minutes` or both.")
        for name, value in vars(self).items():
            if value is None and name in OPTIONAL:
                continue
            if name in LEAST_INTEGERS:
                most = LARGEST_VOCABULARY if name == "vocabulary_size" else LARGEST
                check_integer(name, value, LEAST_INTEGERS[name], most)
            elif name in POSITIVE:
                check_number(name, value, above=0)
            elif name in FRACTIONS:
                check_number(name, value, least=0, below=1)
        check_text("preset", self.preset)
        check_has("model_arguments", self.model_arguments, "a dict", "items")
        check_boolean("recompute", self.recompute)
        check_boolean("attention_images", self.attention_images)
        check_number("length_penalty", self.length_penalty, least=0, below=100)
        for field in dataclasses.fields(self):
            choices = literal_choices(field.type)
            value = getattr(self, field.name)
            if choices and value not in choices:
                raise ValueError(
                    f"`{field.name}` must be one of {list(choices)}. "
                    f"Received: {field.name}={value!r}"
                )
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.checkpoint_minutes is not None and self.checkpoint_updates is not None:
            raise ValueError(
                "Give either `checkpoint_minutes` or `checkpoint_updates`, not both. Received: "
                f"checkpoint_minutes={self.checkpoint_minutes}, "
                f"checkpoint_updates={self.checkpoint_updates}"
            )
        if self.bpe_dropout and self.tokenizer_algorithm != "bpe":
            raise ValueError(
                f"`bpe_dropout` ({self.bpe_dropout}) needs tokenizer_algorithm 'bpe'. "
                f"Received: tokenizer_algorithm={self.tokenizer_algorithm!r}"
            )
        if self.strategy is None and self.replicas not in (None, 1):
            raise ValueError(
                f"`replicas` ({self.replicas}) needs a `strategy`: 'mirrored' on TensorFlow, "
                "'data_parallel' on JAX and PyTorch."
            )


# Least value of every whole number, and what must be positive, or a fraction below 1.
LEAST_INTEGERS = {
    "vocabulary_size": 8,
    "bpe_samples": 1,
    "batch_tokens": 1,
    "max_length": 2,
    "max_shapes": 2,
    "replicas": 1,
    "accumulation_steps": 1,
    "row_multiple": 1,
    "steps": 1,
    "patience": 1,
    "warmup_steps": 1,
    "checkpoint_updates": 1,
    "averaged_checkpoints": 1,
    "bleu_every": 1,
    "beam_size": 1,
    "seed": 0,
}
POSITIVE = ("minutes", "learning_rate_factor", "peak_learning_rate", "checkpoint_minutes")
FRACTIONS = ("bpe_dropout", "label_smoothing")
OPTIONAL = (
    "replicas",
    "steps",
    "minutes",
    "patience",
    "peak_learning_rate",
    "checkpoint_minutes",
    "checkpoint_updates",
)
LARGEST = 10**12
LARGEST_VOCABULARY = 10**6  # as of a tokenizer


def literal_choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a type of literals allows, None among them if it does; () for other types."""
    values: list[Any] = []
    for part in get_args(annotation) or ():
        if part is type(None):
            values.append(None)
        elif get_args(part):
            values.extend(get_args(part))
        elif isinstance(part, str):
            values.append(part)
    return tuple(values) if any(isinstance(value, str) for value in values) else ()


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """What `model_arguments` may say on the command line, in place of the preset's.

    Attributes:
        num_layers: Blocks of the encoder, and of the decoder: the paper's N.
        hidden_dim: Width of the model: d_model.
        intermediate_dim: Width inside the feed-forward networks: d_ff.
        num_heads: Attention heads: h.
        dropout: Probability of dropout.
        attention_dropout: Probability of dropout of attention weights.
        normalize_first: Whether blocks normalise their input, as the authors' later code does.
        branch_feed_forward: Makes a Weighted Transformer, whose branches share one feed-forward
            network or split it: shared or split.
        branched_decoder: Which attention of its decoder has the branches: cross or self.
        position_layout: How positions are encoded: interleaved or halves (sines), or learned.
        attention_window: Positions that self-attention sees to each side, its own counted; all if not
            given.
    """

    num_layers: int | None = None
    hidden_dim: int | None = None
    intermediate_dim: int | None = None
    num_heads: int | None = None
    dropout: float | None = None
    attention_dropout: float | None = None
    normalize_first: bool | None = None
    branch_feed_forward: Literal["shared", "split"] | None = None
    branched_decoder: Literal["cross", "self"] | None = None
    position_layout: Literal["interleaved", "halves", "learned"] | None = None
    attention_window: int | None = None

    def given(self) -> dict[str, Any]:
        """The arguments that are given."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None}
