"""What a configuration comes to on these devices: rows, sampling, schedule, tokenizer, batches, model."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_attention.data.alignments import TokenAlignments, WordAlignments
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.learned_tokenizer import MAX_SENTENCES
from keras_attention.data.mixed_batches import MixedBatches
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import ParallelText
from keras_attention.data.presets import Loaded
from keras_attention.data.symbols import check_tags, tags_of
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.models.pretrained import assign_weights
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.config import TranslationConfig, model_rules
from keras_attention.recipes.start import guided_head, model_arguments, start_of, tokenizer_between
from keras_attention.spec.options import TransformerOptions
from keras_attention.spec.presets import preset_arguments
from keras_attention.training.distribution import available_devices
from keras_attention.training.learning_rate import (
    CooldownToBudget,
    CosineToBudget,
    LearningRateSchedule,
)
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.training.optimizer import Adam
from keras_attention.utils.arguments import rules
from keras_attention.utils.checks import check_depths, did_you_mean
from keras_attention.utils.progress import activity, say
from keras_attention.utils.sides import has_one_vocabulary, target_size_of

ALGORITHM_NAMES = {
    "bpe": "byte-pair encoding",
    "wordpiece": "word-pieces",
    "presegmented": "as given",
    "imported": "that of the pretrained model",
}
# The layers of each part that `freeze` names.
FROZEN = {
    "encoder": ("encoder_blocks", "encoder_positions", "encoder_normalization"),
    "decoder": ("decoder_blocks", "decoder_positions", "decoder_normalization"),
    "embeddings": ("token_embedding", "target_embedding"),
}


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A configuration on the devices that there are. What is derived from it is derived here, once."""

    config: TranslationConfig
    replicas: int = 1

    @classmethod
    def of(cls, config: TranslationConfig) -> "Resolved":
        """Resolve a configuration: one device without a strategy, else `config.replicas` or all."""
        if config.strategy is None:
            return cls(config)
        return cls(config, config.replicas or available_devices(config.strategy))

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], with_start: bool = False) -> "Resolved":
        """Resolve the settings of a run that this or another machine trained, for one device.

        `with_start` says whether the model that it started from is wanted, which must be there then.
        """
        names = {field.name for field in dataclasses.fields(TranslationConfig)}
        known = {name: value for name, value in settings.items() if name in names}
        alone: dict[str, Any] = {"strategy": None, "replicas": None, "accumulation_steps": 1}
        if not with_start:
            alone |= {"start_from": None, "freeze": None, "lora": None, "start_share": 0.0}
        return cls(TranslationConfig(**{**known, **alone}))

    @property
    def start(self) -> Loaded | None:
        """The pretrained model that the run starts from; None for random weights."""
        return None if self.config.start_from is None else start_of(self.config.start_from)

    @property
    def restart(self) -> Callable[[Transformer], None] | None:
        """Gives a model the weights that the run starts from; None for random weights."""
        start = self.start
        return None if start is None else lambda model: assign_weights(model, start.spec)

    @property
    def row_multiple(self) -> int:
        """The number that divides the rows of every batch, so that replicas and parts get equally many.

        If the parts divide `config.row_multiple`, the batches are those of one device.
        """
        parts = self.replicas * self.config.accumulation_steps
        return math.lcm(self.config.row_multiple, parts)

    @property
    def sampling(self) -> dict[str, Any]:
        """How the training text is split into subwords."""
        config = self.config
        if not config.bpe_dropout:
            return {}
        return {"dropout": config.bpe_dropout, "samples": config.bpe_samples, "seed": config.seed}

    def check(self, text: ParallelText) -> None:
        """Refuse what no model can be made from, and sentences that fit into no batch; before any work."""
        self.check_model()
        self.check_room(text)

    def check_model(self) -> None:
        """Refuse a configuration that no model can be made from, before any work."""
        config = self.config
        if self.start is None:
            preset_arguments(config.preset)
        guided_head(config)
        names = rules(TransformerOptions)
        for name in config.model_arguments:
            if name not in names:
                raise ValueError(
                    f"`model_arguments` has {name!r}, which is not an argument of Transformer."
                    f"{did_you_mean(name, names)}"
                )
            if name not in model_rules():
                raise ValueError(
                    f"`model_arguments` has {name!r}, which a run takes from its tokenizer or from its other "
                    "settings. Leave it out there."
                )
        if self.start is None:
            sizes = {**preset_arguments(config.preset), **config.model_arguments}
            TransformerOptions(**sizes, vocabulary_size=8)
            check_depths("num_layers", sizes["num_layers"], most=1000)
        else:
            check_tags("source_prefix", tags_of(config.source_prefix), self.start.tokenizer)
        if config.batch_tokens < 2 * self.row_multiple:
            raise ValueError(
                f"`batch_tokens` ({config.batch_tokens}) is too small: the number of sentences in a batch is "
                f"a multiple of {self.row_multiple} (row_multiple, replicas, accumulation_steps), and each "
                f"has at least 2 tokens. {self._remedy}."
            )

    def check_room(self, text: ParallelText) -> None:
        """Refuse sentences that cannot fit into a batch, as far as this is known before tokenization.

        A word with a letter or digit has at least one token; a byte has at most one.
        """
        rows, limit = self.row_multiple, self.config.max_length
        most = self.config.batch_tokens // rows
        if most >= limit:
            return
        for number, pair in enumerate(text, start=1):
            sides = [normalize(side) for side in pair]
            words = [sum(any(map(str.isalnum, word)) for word in side.split()) for side in sides]
            # Two more tokens: the end, and a space that BPE puts first.
            is_kept = all(words) and all(len(side.encode()) + 2 <= limit for side in sides)
            if is_kept and max(words) + 1 > most:
                raise ValueError(
                    f"`batch_tokens` ({self.config.batch_tokens}) is too small: the number of sentences in a "
                    f"batch is a multiple of {rows} (row_multiple, replicas, accumulation_steps), so each "
                    f"may have at most {most} tokens, but pair {number} of '{text.name}' has a side of "
                    f"{max(words)} words. {self._remedy}, or lower `accumulation_steps` or `max_length`."
                )

    @property
    def _remedy(self) -> str:
        """What `batch_tokens` has to be so that no sentence is too long."""
        enough = self.row_multiple * self.config.max_length
        return f"Raise it to {enough}, which is enough for all sentences"

    def tokenizer(self, corpus: Corpus, folder: Path) -> Tokenizer:
        """Load the tokenizer in a folder, or train one on both sides of the training text and save it there.

        At most `MAX_SENTENCES` sentences are used, evenly spread over the text, so that memory does not
        grow with it. A corpus that is already split into subwords brings its own vocabulary.
        """
        if Tokenizer.is_saved_in(folder):
            return Tokenizer.load(folder)
        symbols = (*corpus.symbols, *self.config.symbols, *tags_of(self.config.source_prefix))
        if self.start is not None:
            tokenizer = tokenizer_between(self.start.tokenizer, corpus)
        elif corpus.vocabulary is not None:
            tokenizer = Tokenizer.from_vocabulary(corpus.vocabulary)
        else:
            with activity("training the tokenizer"):
                tokenizer = Tokenizer.train(
                    corpus.train.both_sides(at_most=MAX_SENTENCES),
                    vocabulary_size=self.config.vocabulary_size,
                    algorithm=self.config.tokenizer_algorithm,
                    symbols=symbols,
                )
        check_tags("symbols", symbols, tokenizer)
        if self.config.source_prefix is not None:
            tokenizer.source_prefix = self.config.source_prefix
        tokenizer.save(folder)
        say(
            f"Tokenizer: {ALGORITHM_NAMES[tokenizer.algorithm]}, "
            f"{tokenizer.vocabulary_size:,} word-pieces, "
            + (
                "shared"
                if has_one_vocabulary(tokenizer)
                else f"{target_size_of(tokenizer):,} of the target"
            )
        )
        return tokenizer

    def batches(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        folder: Path,
        alignments: WordAlignments | None = None,
    ) -> tuple[TokenBatches, TokenBatches]:
        """Batches of the training and the validation set, from token stores in a folder, made if absent."""
        texts = corpus.parts if self.config.mixture else {corpus.name: corpus.train}
        stores = {
            name: TokenStore.build(folder, text, tokenizer, **self.sampling)
            for name, text in texts.items()
        }
        validation = self._validation_batches(
            TokenStore.build(folder, corpus.validation, tokenizer)
        )
        if validation.dropped_long:
            say(
                f"The perplexity of the validation part leaves out {validation.dropped_long:,} pair(s) with "
                f"over {self.config.batch_tokens:,} tokens on a side, which no batch can hold."
            )
        aligned = None
        if alignments is not None:  # Then there is no mixture.
            aligned = TokenAlignments.build(stores[corpus.name], alignments, tokenizer)
        return self._training_batches(stores, aligned), validation

    def found_batches(
        self, fingerprints: Mapping[str, Any], tokenizer: Tokenizer, folder: Path
    ) -> tuple[TokenBatches | None, TokenBatches | None]:
        """Return the batches of an earlier run, by its settings; None for a set whose store is gone."""

        def found(fingerprint: str, **options: Any) -> TokenStore | None:
            path = TokenStore.path(folder, fingerprint, tokenizer, **options)
            return TokenStore.open(path) if path.exists() else None

        parts = fingerprints.get("parts") or {"train": fingerprints.get("train_fingerprint", "")}
        stores = {name: found(fingerprint, **self.sampling) for name, fingerprint in parts.items()}
        there = {name: store for name, store in stores.items() if store is not None}
        validation = found(fingerprints.get("validation_fingerprint", ""))
        return (
            None if len(there) < len(stores) else self._training_batches(there),
            None if validation is None else self._validation_batches(validation),
        )

    def _training_batches(
        self, stores: Mapping[str, TokenStore], alignments: TokenAlignments | None = None
    ) -> TokenBatches:
        options: dict[str, Any] = {
            "batch_tokens": self.config.batch_tokens,
            "seed": self.config.seed,
            "num_replicas": self.row_multiple,
            "max_length": self.config.max_length,
            "max_shapes": self.config.max_shapes,
        }
        if self.config.mixture:
            return MixedBatches(stores, parse_mixture(self.config.mixture, stores), **options)
        (store,) = stores.values()
        return TokenBatches(store, alignments=alignments, **options)

    def _validation_batches(self, store: TokenStore) -> TokenBatches:
        """Return the batches that a run's perplexity is measured on: all pairs that a batch can hold."""
        most = self.config.batch_tokens
        longest = int(max(store.source_lengths.max(), store.target_lengths.max()))
        return TokenBatches(
            store,
            most,
            shuffle=False,
            max_length=most if longest > most else None,
            max_shapes=self.config.max_shapes,
        )

    def untrained_model(self, vocabulary_size: int) -> Transformer:
        """Make the model, before any update."""
        config = self.config
        if self.start is not None:
            return self._pretrained_model(self.start)
        return Transformer.from_preset(
            config.preset,
            vocabulary_size=vocabulary_size,
            seed=config.seed,
            dtype=config.dtype,
            recompute=config.recompute,
            **config.model_arguments,
        )

    def _pretrained_model(self, start: Loaded) -> Transformer:
        """Make the model that the run starts from, without the parts that are not trained."""
        config = self.config
        model = Transformer.from_spec(
            start.spec,
            seed=config.seed,
            dtype=config.dtype,
            recompute=config.recompute,
            **model_arguments(config),
        )
        for name in FROZEN.get(config.freeze or "", ()):
            layers = getattr(model, name, None)
            for layer in layers if isinstance(layers, list) else [layers]:
                if layer is not None:
                    layer.trainable = False
        if config.lora is not None:
            model.enable_lora(config.lora)
        return model

    def model(self, vocabulary_size: int) -> Transformer:
        """Make the model, compiled for training."""
        config, model = self.config, self.untrained_model(vocabulary_size)
        model.compile(
            optimizer=Adam(_schedule(config, model.hidden_dim), moving_average=config.ema),
            loss=LabelSmoothedCrossentropy(config.label_smoothing, model.pad_token_id),
            accumulation_steps=config.accumulation_steps,
            alignment_head=guided_head(config),
            alignment_weight=config.guided_alignment_weight,
            jit_compile=config.jit_compile or "auto",
        )
        return model


def _schedule(
    config: TranslationConfig, hidden_dim: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    peak = config.peak_learning_rate
    if peak is None:
        return LearningRateSchedule(hidden_dim, config.warmup_steps, config.learning_rate_factor)
    if config.cooldown is not None:
        return CooldownToBudget(peak, config.warmup_steps)
    if config.minutes is not None:
        return CosineToBudget(peak, config.warmup_steps)
    assert config.steps is not None  # The configuration was checked.
    warmup_steps = min(config.warmup_steps, max(1, config.steps // 2))
    return keras.optimizers.schedules.CosineDecay(
        peak / warmup_steps,  # Keras counts from 0, where a rise from 0 would waste an update.
        max(1, config.steps - warmup_steps),
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )
