"""All settings of a run, besides the corpus."""

import dataclasses
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from keras_attention.data.mixture import parse_mixture
from keras_attention.data.normalization import normalize
from keras_attention.data.symbols import checked_symbols
from keras_attention.spec.options import DROPOUTS, TransformerOptions
from keras_attention.utils.arguments import (
    BeamSize,
    FromZero,
    LengthPenalty,
    Rate,
    check_fields,
    rules,
)
from keras_attention.utils.checks import check_intervals

LARGEST = 10**12
Some = Annotated[int, Ge(1), Le(LARGEST)]
Minutes = Annotated[float, Gt(0), Le(5_000_000)]  # almost ten years

BUDGET = ("steps", "minutes")
# What may change between two starts of a run: how long it trains, on what hardware, and what is logged.
RESUMABLE_FIELDS = (
    *BUDGET,
    "patience",
    "strategy",
    "replicas",
    "accumulation_steps",
    "recompute",
    "jit_compile",
    "attention_log",
)


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """All settings of a run, besides the corpus.

    Attributes:
        preset: Size of the model: tiny, small, medium, base, big, big_en_fr, or a row of the paper's
            Table 3, such as table3_a_heads_1.
        model_arguments: Arguments of `Transformer` that replace the preset's.
        start_from: A pretrained model to train further: the folder of a run or of another program's model, or
            a handle such as hf://owner/name. Its sizes and its tokenizer are taken.
        freeze: Part of the pretrained model that is not trained: encoder, decoder or embeddings.
        lora: Rank of small matrices that are trained beside the queries' and values' frozen kernels, in place
            of all weights of the pretrained model (Hu et al. 2021, "LoRA"). Such as 8.
        start_share: Share of the pretrained model's own weights in those that the run ends with, so that it
            forgets less (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
        vocabulary_size: Number of word-pieces in the vocabulary that source and target share.
        tokenizer_algorithm: How words are split: bpe, or wordpiece as in the paper's English-French.
        symbols: Words in angle brackets that the tokenizer keeps whole, such as <2de> and <bt>. The tags of
            the text's languages and of `source_prefix` are among them.
        source_prefix: Text put before every source, in training and later by the run's translator, such as
            the tag <2de>.
        bpe_dropout: Probability that BPE skips a merge in the training text, which is then split in
            `bpe_samples` different ways; for small corpora.
        bpe_samples: With BPE dropout, the number of epochs before a sentence is split the same way again.
        mixture: How the named parts of the text are mixed: NAME:WEIGHT for each, its share of the updates;
            until:UPDATE ends a stage, after which the words of the next stand. Without it, all pairs alike.
        batch_tokens: Positions of a batch on each side, padding included.
        max_length: Pairs with more tokens on a side, end token included, are left out of training.
        max_shapes: Largest number of batch shapes. Fewer shapes compile faster but need more padding.
        strategy: How several devices share a batch: none, mirrored (GPUs on TensorFlow) or
            data_parallel (devices on JAX, processes that torchrun starts on PyTorch).
        replicas: Number of devices; by default all, if there is a strategy.
        accumulation_steps: Number of parts of a batch that are computed one after the other, to save
            memory.
        recompute: Whether blocks are computed again in the backward pass: less memory, a third more
            compute.
        jit_compile: Whether updates are compiled in any case. PyTorch compiles none by itself: about a
            minute for each shape of a batch, and then an update takes 0.4 of the time on a GPU.
        row_multiple: The number of sentences in a batch is a multiple of this. Runs train on the same
            batches if their replicas times accumulation steps divide it; otherwise it is raised.
        steps: Largest number of updates; none for no limit.
        minutes: Longest training time in minutes, without compiling and validation; none for no limit.
        patience: Training stops after this many epochs without a better validation perplexity, or without a
            better score of `best_by`, in epochs that have one; none to train to the end of the budget.
        best_by: The best checkpoint by this is kept, and `patience` goes by it: perplexity, or bleu or chrf
            of some validation sentences, every `bleu_every` epochs; none to keep the last checkpoints alone.
        final_model: Which weights the run ends with: the average of the last checkpoints, or the best one
            by `best_by`.
        warmup_steps: Updates until the learning rate reaches its peak.
        learning_rate_factor: Factor that multiplies the paper's learning rate.
        peak_learning_rate: Peak of a learning rate that replaces the paper's schedule. The rate rises to
            the peak in `warmup_steps` updates and falls to 0 at the end of the budget: see `cooldown`.
            With `minutes` it depends on the machine's speed. With `steps` alone, and without
            `checkpoint_minutes`, a run can be repeated exactly.
        cooldown: Share of the budget, at most 0.5, in which a learning rate with a peak falls to 0. Before,
            it stays at the peak, so the budget of a run may change. With none, it falls along half a cosine
            from the end of the warm-up on, and the budget of a run may not change.
        label_smoothing: The paper's epsilon_ls.
        guided_alignment: A file of word alignments that one head of the cross-attention learns, a line in
            Pharaoh form (0-0 1-2) for each training pair; or gold for the true ones of the corpus, as the
            demo has them.
        guided_alignment_weight: Weight of the loss of that head, beside that of the translation.
        guided_alignment_head: Which head that is: its layer and its number in it, from 0; by default the
            first head of the last layer but one.
        checkpoint_minutes: Minutes between two checkpoints; none for one per epoch, and every ten minutes
            one that is not averaged but lets a stopped run continue.
        checkpoint_updates: Updates between two checkpoints that are averaged, instead of minutes.
        averaged_checkpoints: Number of last checkpoints that are averaged.
        ema: Decay of an exponential moving average of the weights, such as 0.999. It is validated during
            training and is the result, in place of the average of checkpoints.
        bleu_every: Epochs between two BLEU scores of the validation set during training.
        attention_log: Whether to log the attention on some sentences, and the importance of heads, for
            the Attention tab of TensorBoard; a few seconds for each time.
        beam_size: Hypotheses kept in the beam search.
        length_penalty: The paper's alpha: the higher, the longer the translations.
        dtype: Dtype policy of Keras: float32, or mixed_bfloat16 on hardware that supports it.
        seed: Seed of initial weights, dropout and the order of batches.
    """

    preset: str = "tiny"
    model_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    start_from: str | None = None
    freeze: Literal["encoder", "decoder", "embeddings"] | None = None
    lora: Some | None = None
    start_share: Annotated[float, Ge(0), Lt(1)] = 0.0
    vocabulary_size: Annotated[int, Ge(8), Le(10**6)] = 8000
    tokenizer_algorithm: Literal["bpe", "wordpiece"] = "bpe"
    symbols: tuple[str, ...] = ()
    source_prefix: str | None = None
    bpe_dropout: Rate = 0.0
    bpe_samples: Some = 8
    mixture: tuple[str, ...] = ()
    batch_tokens: Some = 4096
    max_length: Annotated[int, Ge(2), Le(LARGEST)] = 256
    max_shapes: Annotated[int, Ge(2), Le(LARGEST)] = 24
    strategy: Literal["mirrored", "data_parallel"] | None = None
    replicas: Some | None = None
    accumulation_steps: Some = 1
    recompute: bool = False
    jit_compile: bool = False
    row_multiple: Some = 8
    steps: Some | None = None
    minutes: Minutes | None = None
    patience: Some | None = None
    best_by: Literal["bleu", "chrf", "perplexity"] | None = None
    final_model: Literal["average", "best"] = "average"
    warmup_steps: Some = 4000
    learning_rate_factor: Annotated[float, Gt(0), Le(10_000)] = 1.0
    peak_learning_rate: Annotated[float, Gt(0), Le(100)] | None = None
    cooldown: Annotated[float, Gt(0), Le(0.5)] | None = None
    label_smoothing: Rate = 0.1
    guided_alignment: str | None = None
    guided_alignment_weight: Annotated[float, Gt(0)] = 0.05
    guided_alignment_head: tuple[FromZero, FromZero] | None = None
    checkpoint_minutes: Minutes | None = None
    checkpoint_updates: Some | None = None
    averaged_checkpoints: Annotated[int, Ge(1), Le(10_000)] = 5
    ema: Annotated[float, Gt(0), Lt(1)] | None = None
    bleu_every: Some = 5
    attention_log: bool = True
    beam_size: BeamSize = 4
    length_penalty: LengthPenalty = 0.6
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    seed: Annotated[int, Ge(0), Le(LARGEST)] = 1

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("Training needs an end: give `steps`, `minutes` or both.")
        check_fields(self)
        self._check_combinations()

    def _check_guided_alignment(self) -> None:
        if self.guided_alignment is None:
            for name in ("guided_alignment_weight", "guided_alignment_head"):
                if getattr(self, name) != getattr(TranslationConfig, name):
                    raise ValueError(
                        f"`{name}` needs `guided_alignment`, the alignments to learn: give them, or leave "
                        f"`{name}` out."
                    )
            return
        if not self.guided_alignment.strip():
            raise ValueError("`guided_alignment` is empty. Leave it out, or give a file or gold.")
        if self.mixture:
            raise ValueError(
                "`guided_alignment` cannot be combined with `mixture`: the lines of one file do not say to "
                "which text they belong. Leave one of them out."
            )
        if self.tokenizer_algorithm == "wordpiece" and self.guided_alignment != "gold":
            raise ValueError(
                "`guided_alignment` with a file needs tokenizer_algorithm='bpe': word-pieces split "
                "punctuation off, which the words of the file do not."
            )
        if self.freeze == "decoder":
            raise ValueError(
                "`guided_alignment` trains a head of the decoder, which freeze='decoder' keeps as it is. "
                "Leave one of them out."
            )

    def _check_start(self) -> None:
        if self.symbols and self.start_from is not None:
            raise ValueError(
                f"`symbols` ({', '.join(self.symbols)}) cannot be given with `start_from`: the pretrained "
                "model has its vocabulary. Leave them out: tags that it knows are whole in any case."
            )
        if self.start_from is not None:
            decided = [name for name in self.model_arguments if name not in DROPOUTS]
            if decided:
                raise ValueError(
                    f"`model_arguments` has {decided[0]!r}, which the model of `start_from` decides. Leave "
                    f"it out: only {', '.join(DROPOUTS)} may be given."
                )
        for name in () if self.start_from else ("freeze", "lora", "start_share"):
            if getattr(self, name):
                raise ValueError(
                    f"`{name}` ({getattr(self, name)!r}) is for a pretrained model: give `start_from`, or "
                    "leave it out."
                )
        if self.lora is not None and (self.freeze is not None or self.ema is not None):
            raise ValueError(
                f"`lora` ({self.lora}) cannot be combined with `freeze`, as it freezes all of the pretrained "
                "weights, or with `ema`: the product of two averages is not the average of products. Leave "
                f"one of them out. Received: freeze={self.freeze!r}, ema={self.ema}"
            )

    def _check_combinations(self) -> None:
        self._check_guided_alignment()
        object.__setattr__(self, "symbols", tuple(checked_symbols(self.symbols)))
        parse_mixture(self.mixture)
        if self.source_prefix is not None and not normalize(self.source_prefix):
            raise ValueError("`source_prefix` is empty. Leave it out, or give a text.")
        if self.ema is not None and self.dtype == "mixed_float16":
            raise ValueError("`ema` does not go with dtype 'mixed_float16'. Use 'mixed_bfloat16'.")
        self._check_start()
        check_intervals(self.checkpoint_minutes, self.checkpoint_updates, "checkpoint_")
        if self.final_model == "best" and self.best_by is None:
            raise ValueError(
                "`final_model` 'best' needs `best_by`: say by what a checkpoint is the best, such as "
                "best_by='perplexity'."
            )
        if self.bpe_dropout and self.tokenizer_algorithm != "bpe":
            raise ValueError(
                f"`bpe_dropout` ({self.bpe_dropout}) needs tokenizer_algorithm 'bpe'. "
                f"Received: tokenizer_algorithm={self.tokenizer_algorithm!r}"
            )
        if self.cooldown is not None and self.peak_learning_rate is None:
            raise ValueError(
                f"`cooldown` ({self.cooldown}) needs a `peak_learning_rate`: the paper's learning rate does "
                "not depend on the budget. Give one, or leave `cooldown` out."
            )
        if self.strategy is None and self.replicas not in (None, 1):
            raise ValueError(
                f"`replicas` ({self.replicas}) needs a `strategy`: 'mirrored' on TensorFlow, "
                "'data_parallel' on JAX and PyTorch."
            )

    @property
    def changeable(self) -> tuple[str, ...]:
        """The settings that may change between two starts: not a budget that a learning rate follows.

        The names of the corpus, of the model that it starts from and of a file of alignments may:
        fingerprints say what they hold.
        """
        falls = self.peak_learning_rate is not None and self.cooldown is None
        followed = BUDGET if falls else ()
        return (
            "corpus",
            "start_from",
            "guided_alignment",
            *(name for name in RESUMABLE_FIELDS if name not in followed),
        )


# The number in Keras' logs for each `best_by`, and whether its least or its largest value is the best.
MEASURES: dict[str, tuple[str, Literal["min", "max"]]] = {
    "perplexity": ("val_perplexity", "min"),
    "bleu": ("val_bleu", "max"),
    "chrf": ("val_chrf", "max"),
}
# Arguments of `Transformer` that a run takes from its tokenizer or from its other settings.
NOT_OF_A_RUN = (
    *("vocabulary_size", "target_vocabulary_size"),
    *("pad_token_id", "end_token_id", "start_token_id"),
    *("suppressed_token_ids", "attention_window", "recompute", "seed"),
)


def model_rules() -> dict[str, Any]:
    """Return the annotations of what `model_arguments` may hold."""
    known = rules(TransformerOptions)
    return {name: known[name] for name in known if name not in NOT_OF_A_RUN}
