"""Wrong values for every parameter of every public callable: each is refused, and the error names it.

The table holds every name of every room's `__all__`; a new name or parameter without an entry fails.
Transformer, blocks, losses and schedules have stricter tables in test_wrong_values.py.
"""

import contextlib
import importlib
import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest

import keras_attention
from keras_attention import TokenBatches, Tokenizer, TokenStore, Transformer
from keras_attention.data.corpora import corpus_from_files
from keras_attention.recipes import TranslationConfig
from tests.test_wrong_values import DOORS

SIZE = [0, -1, 2.5, math.nan, math.inf, True, "3", [1]]
COUNT = [-1, 2.5, math.nan, True, "3", [1], None]
POSITIVE = [0, -1.0, math.nan, math.inf, "1", [1.0]]
AT_LEAST_0 = [-1.0, math.nan, math.inf, "1", None]
SWITCH = [0, "yes", None]
TEXT = [None, 3, b"x", ["x"]]
TEXTS = ["one text", None, 3, [1], ["x", None]]
PATH = [None, 3, "", b"x", ["x"], "a\0b"]
WORD = ["no such word", 3, ["x"]]
THING = [None, 3, "x"]  # a model, a tokenizer, batches, ...
OPTIONAL_THING = [3, "x"]
FUNCTION = [3, "x"]
IDS = [None, 3, "x", [[0.5]], [[-1]]]
PAIR = ("a dog", "a house")
SEED = [-1, 1.5, "x", True]
RATE = [-0.1, 1.0, math.nan, math.inf, "0.1", None, [0.1]]
OF_BLOCKS = {
    "normalize_first": SWITCH,
    "use_attention_bias": SWITCH,
    "seed": SEED,
    "sliding_window": SIZE,
    "branch_feed_forward": WORD,
}
SPREAD = {
    "share": [None, 3, "x", (0, 1), (2, 1), (1,), (1.5, 2)],
    "ray": [None, 3, []],
    "workers": SIZE,
    "show_progress": SWITCH,
}
OWN_TEXT = {
    "source_language": TEXT,
    "target_language": TEXT,
    "validation_size": COUNT[:-1],
    "test_size": COUNT[:-1],
    "filters": OPTIONAL_THING,
}

# Results that callables return, and errors that they raise: no doors.
NO_DOORS = {
    "BeamSearchResult",
    "CorpusScore",
    "DamagedCheckpoint",
    "ModelSizes",
    "NonFiniteTraining",
    "PairedDifference",
    "Plan",
    "SpecError",
    "Stop",
    "TrainingMemory",
    "TrainingStopped",
    "Translation",
    "VerifiedPreset",
    # Plain declarations of what a model has; `TransformerSpec.check` says what is wrong with them.
    "AttentionSpec",
    "SSRUSpec",
    "BlockSpec",
    "BranchedAttentionSpec",
    "DenseSpec",
    "EmbeddingSpec",
    "FeedForwardSpec",
    "NormSpec",
    "PositionsSpec",
    "StackSpec",
    "TransformerSpec",
}
# What Keras itself interprets, and says so in its own words; and words that may be any text for display.
KERAS_OWN = {
    "activation",
    "activity_regularizer",
    "attention_axes",
    "bias_constraint",
    "bias_initializer",
    "bias_regularizer",
    "embeddings_initializer",
    "kernel_constraint",
    "kernel_initializer",
    "kernel_regularizer",
    "kwargs",
    "dtype",
    "options",  # of `Translator`, which checks them
    "name",
    "output_shape",
}

# callable -> (its right arguments, parameter -> wrong values); `x` has a model, a tokenizer, ...
TABLE = {
    # callbacks
    "AttentionLog": (
        lambda x: {"writer": x.writer, "tokenizer": x.tokenizer, "pairs": [PAIR]},
        {
            "writer": THING,
            "tokenizer": THING,
            "pairs": [*TEXTS, [], [["x"]], [["x", 3]]],
            "shown": [*SIZE, None],
            "alignments": [3, "x", [], [None, None]],
            "token_ranks": [3, "x", [[1.0]]],
            "translate": FUNCTION,
            "importance": SWITCH,
            "monitor": OPTIONAL_THING,
            "stop": OPTIONAL_THING,
        },
    ),
    "BestCheckpoint": (
        lambda x: {"monitor": "val_bleu"},
        {
            "monitor": TEXT,
            "mode": [*WORD, None],
            "stop": OPTIONAL_THING,
            "budget": OPTIONAL_THING,
        },
    ),
    "Budget": (
        lambda x: {"steps": 3},
        {
            "steps": SIZE,
            "minutes": POSITIVE,
            "seconds_before": AT_LEAST_0,
            "batches": OPTIONAL_THING,
            "cooldown": [0.0, 0.6, -0.1, math.nan, "x"],
            "patience": SIZE,
        },
    ),
    "Checkpoints": (
        lambda x: {"folder": x.folder / "checkpoints"},
        {
            "folder": PATH,
            "keep": [*SIZE, None],
            "stop": OPTIONAL_THING,
            "every_minutes": POSITIVE,
            "every_updates": SIZE,
            "average_minutes": POSITIVE[1:],
            "average_updates": SIZE,
            "stateful": [3, "x", None, [3]],
            "write": SWITCH,
        },
    ),
    "ConsoleProgress": (
        lambda x: {"budget": x.budget},
        {
            "budget": THING,
            "monitor": OPTIONAL_THING,
            "stream": OPTIONAL_THING,
            "announce": FUNCTION,
        },
    ),
    "HugePages": (lambda x: {}, {}),
    "MetricsLog": (lambda x: {"path": x.folder / "log"}, {"path": PATH}),
    "StopOnNonFinite": (
        lambda x: {"batches": x.batches},
        {
            "batches": THING,
            "tokenizer": OPTIONAL_THING,
            "every": [*SIZE, None],
            "shown": [*SIZE, None],
        },
    ),
    "RunCallback": (lambda x: {}, {"stop": OPTIONAL_THING}),
    "StopOnSignal": (lambda x: {}, {"stop": OPTIONAL_THING, "at_once": SWITCH}),
    "StopWithoutGain": (
        lambda x: {"patience": 2},
        {
            "patience": SIZE,
            "monitor": TEXT,
            "stop": OPTIONAL_THING,
            "budget": OPTIONAL_THING,
            "mode": [*WORD, None],
        },
    ),
    "TrainingMonitor": (
        lambda x: {"writer": x.writer},
        {
            "writer": OPTIONAL_THING,
            "batches": OPTIONAL_THING,
            "every": [*SIZE, None],
            "log": OPTIONAL_THING,
            "flops": FUNCTION,
            "peak": POSITIVE,
            "console": OPTIONAL_THING,
            "validation_writer": OPTIONAL_THING,
            "budget": OPTIONAL_THING,
        },
    ),
    "TranslationScores": (
        lambda x: {"translate": len, "sources": ["x"], "references": ["x"]},
        {
            "translate": [*FUNCTION, None],
            "sources": TEXTS,
            "references": TEXTS,
            "every_epochs": SIZE,
            "every_updates": SIZE,
            "monitor": OPTIONAL_THING,
            "stop": OPTIONAL_THING,
        },
    ),
    "ValidationPerplexity": (
        lambda x: {"batches": x.batches},
        {"batches": THING, "stop": OPTIONAL_THING},
    ),
    "fit_resumably": (
        lambda x: {
            "model": x.model,
            "batches": x.batches,
            "checkpoints": x.checkpoints,
            "callbacks": [x.checkpoints],
        },
        {
            "model": THING,
            "batches": THING,
            "checkpoints": THING,
            "callbacks": [None, 3, [3]],
            "epochs": [*SIZE, None],
        },
    ),
    # data
    "Corpus": (
        lambda x: {
            "name": "x",
            "source_language": "en",
            "target_language": "de",
            "synthetic": False,
            "description": "x",
            "train": x.corpus.train,
            "validation": x.corpus.validation,
        },
        {
            **dict.fromkeys(("name", "source_language", "target_language", "description"), TEXT),
            "synthetic": SWITCH,
            "train": THING,
            "validation": THING,
            "test": OPTIONAL_THING,
            "extra": [3, "x", None, {"x": 3}],
            "vocabulary": [3, "", b"x"],
            "symbols": [3, "<2de>", ["2de"]],
            "parts": [3, "x", {"a": 3}],
            "alignments": [3, "x", None],
        },
    ),
    "FilteredText": (
        lambda x: {"text": x.corpus.train, "filters": x.filters},
        {"text": THING, "filters": THING},
    ),
    "Filters": (
        lambda x: {},
        {
            "max_words": SIZE,
            "max_ratio": [0.5, math.nan, math.inf, "2"],
            "drop_duplicates": SWITCH,
        },
    ),
    "ParallelText": (
        lambda x: {"name": "x", "pairs": [("x", "y")]},
        {"name": TEXT, "pairs": [None, 3, iter([("x", "y")])]},
    ),
    "TokenBatches": (
        lambda x: {"store": x.batches.store, "batch_tokens": 64},
        {
            "store": THING,
            **dict.fromkeys(("batch_tokens", "num_replicas", "length_multiple"), [*SIZE, None]),
            "shuffle": SWITCH,
            "seed": COUNT,
            "max_length": SIZE,
            "max_shapes": [*SIZE, 1, None],
            "epochs_per_pass": SIZE,
        },
    ),
    "TokenStore": (lambda x: {"folder": x.batches.store.folder}, {"folder": PATH}),
    "Tokenizer": (
        lambda x: {"model": x.tokenizer._model},
        {
            "model": [None, 3, "x", b"no model"],
            "algorithm": [*WORD, None],
            "normalization": WORD,
            "source_prefix": [3, "", "<2de>"],
        },
    ),
    "corpus_from_files": (
        lambda x: {"train": x.files, "validation": x.held_out},
        {
            "train": [None, 3, "x", ["x"], [3, 4], [None, None]],
            "validation": [3, "x", ["x"], [3, 4]],
            "test": [3, "x", ["x"], [3, 4]],
            **OWN_TEXT,
        },
    ),
    "corpus_from_tsv": (
        lambda x: {"train": x.tsv, "validation": x.folder / "held_out.tsv"},
        {
            "train": PATH,
            "validation": PATH[1:],
            "test": PATH[1:],
            "has_languages": SWITCH,
            **OWN_TEXT,
        },
    ),
    "load_corpus": (
        lambda x: {"name": "demo"},
        {
            "name": [*WORD, None],
            "data_dir": PATH[1:],
            "source_language": TEXT,
            "target_language": TEXT,
            "cache_dir": PATH[1:],
            "base_url": TEXT[1:],
            "filters": OPTIONAL_THING,
        },
    ),
    "write_corpus": (
        lambda x: {"corpus": x.corpus, "folder": x.folder / "written"},
        {"corpus": THING, "folder": PATH},
    ),
    # decoding
    "ForcedPrefix": (
        lambda x: {"vocabulary_size": 9},
        {"vocabulary_size": [*SIZE, None], "then": OPTIONAL_THING},
    ),
    "RequiredPhrases": (
        lambda x: {"vocabulary_size": 9, "end_token_id": 1},
        {"vocabulary_size": [*SIZE, None], "end_token_id": [*COUNT, 9]},
    ),
    "Restrictions": (
        lambda x: {},
        {
            "no_repeat_ngram_size": [*COUNT, None],
            "banned": [None, 3, "x", [3], [" "]],
            "min_length": [*COUNT, None],
            "max_length": SIZE,
        },
    ),
    "Sampling": (
        lambda x: {},
        {
            "temperature": [0, -1, math.nan, math.inf, "x", None],
            "top_k": SIZE,
            "top_p": [0, 1.5, -1, math.nan, "x"],
            "seed": [*COUNT, 2**32, None],
        },
    ),
    "TextConstraint": (
        lambda x: {"constraint": x.constraint, "start": x.constraint.start},
        {"constraint": THING, "start": [*FUNCTION, None]},
    ),
    "Translator": (
        lambda x: {"model": x.model, "tokenizer": x.tokenizer},
        {
            "model": THING,
            "tokenizer": THING,
            "beam_size": [*SIZE, None],
            "length_penalty": [-1, math.nan, math.inf, "x", None],
            "max_extra_length": COUNT,
            "batch_tokens": [*SIZE, None],
            "batch_size": SIZE,
            "show_progress": SWITCH,
            "precision": WORD,
            "engine": [*WORD, None],
            "constraint": OPTIONAL_THING,
            "sampling": OPTIONAL_THING,
            "restrictions": OPTIONAL_THING,
            "longest_source": SIZE,
            "model_options": THING,
            "card": THING,
        },
    ),
    "WellFormedTrees": (
        lambda x: {"vocabulary_size": 9, "phrases": {"S": (2, 3)}, "tags": [4], "end_token_id": 1},
        {
            "vocabulary_size": [*SIZE, None],
            "phrases": [None, 3, [], {}, {"S": 3}, {"S": (2, 99)}],
            "tags": [None, 3, "x", [99], [-1], [0.5]],
            "end_token_id": [*COUNT, 9],
            "max_depth": [*SIZE, None],
        },
    ),
    "export_saved_model": (
        lambda x: {"model": x.model, "tokenizer": x.tokenizer, "folder": x.folder / "export"},
        {
            "model": THING,
            "tokenizer": THING,
            "folder": PATH,
            "beam_size": [*SIZE, None],
            "length_penalty": [-1, math.nan, math.inf, "x", None],
            "max_extra_length": COUNT,
            "max_length": [*SIZE, None, 1],
            "overwrite": SWITCH,
        },
    ),
    "verify_preset": (lambda x: {"preset": "demo_en_de"}, {"preset": PATH}),
    "beam_search": (
        lambda x: {
            "step": len,
            "cache": {},
            "max_lengths": np.array([3, 4]),
            "start_token_id": 0,
            "end_token_id": 1,
        },
        {
            "step": [*FUNCTION, None],
            "max_lengths": [None, "x", [0.5], [[3]], [-1]],
            "beam_size": [*SIZE, None],
            "start_token_id": COUNT,
            "end_token_id": COUNT,
            "pad_token_id": COUNT[1:],
            "length_penalty": [-1, math.nan, math.inf, "x", None],
            "stop": [*WORD, None],
            "max_length": SIZE,
            "constraint": OPTIONAL_THING,
        },
    ),
    # evaluation
    "bracketing_f1": (
        lambda x: {"golds": [x.tree], "parses": [x.tree]},
        {"golds": [None, 3], "parses": [None, 3], "rules": THING},
    ),
    "corpus_bleu": (
        lambda x: {"hypotheses": ["x"], "references": ["x"]},
        {
            "hypotheses": TEXTS,
            "references": TEXTS,
            "tokenize": [*WORD, None],
            "lowercase": SWITCH,
            "smoothing": [*WORD, None],
        },
    ),
    "corpus_chrf": (
        lambda x: {"hypotheses": ["x"], "references": ["x"]},
        {"hypotheses": TEXTS, "references": TEXTS, "word_order": COUNT, "lowercase": SWITCH},
    ),
    "corpus_scores": (
        lambda x: {"hypotheses": ["x"], "references": ["x"]},
        {"hypotheses": TEXTS, "references": TEXTS, "language": TEXT},
    ),
    "evaluation_report": (
        lambda x: {
            "model": x.model,
            "translate": list,
            "checkpoints": [x.folder / "checkpoint"],
            "sources": ["x"],
            "references": ["x"],
        },
        {
            "model": THING,
            "translate": [*FUNCTION, None],
            "checkpoints": [None, 3, "x", [], [3]],
            "sources": TEXTS,
            "references": TEXTS,
            "name": TEXT,
            "language": TEXT,
            "measure_perplexity": FUNCTION,
            "cost": OPTIONAL_THING,
            "decoding": OPTIONAL_THING,
            "samples": [*SIZE, None],
            "best": OPTIONAL_THING,
            "use_best": SWITCH,
            "moving_average": FUNCTION,
            "seed": COUNT,
            "set_weights": [*FUNCTION, None],
            "start": [value for value in FUNCTION if value is not None],
        },
    ),
    "flops_utilization": (
        lambda x: {"flops": 1.0, "seconds": 1.0, "peak": 1.0},
        {"flops": AT_LEAST_0, "seconds": [*POSITIVE, None], "peak": [*POSITIVE, None]},
    ),
    "head_importance": (
        lambda x: {
            "model": x.model,
            **dict.fromkeys(
                ("encoder_token_ids", "decoder_token_ids", "target_token_ids"), np.array([[5, 1]])
            ),
        },
        {
            "model": THING,
            **dict.fromkeys(("encoder_token_ids", "decoder_token_ids", "target_token_ids"), IDS),
        },
    ),
    "matmul_peak": (lambda x: {}, {"dtype": [*WORD, None], "seconds": [*POSITIVE, None]}),
    "paired_bootstrap": (
        lambda x: {"systems": {"a": ["x"], "b": ["y"]}, "references": ["x"]},
        {
            "systems": [None, 3, "x", {}, {"a": ["x"]}, *({"a": ["x"], "b": w} for w in TEXTS)],
            "references": TEXTS,
            "baseline": WORD,
            "language": TEXT,
            "samples": [*SIZE, None],
            "seed": COUNT,
        },
    ),
    "paper_training_cost": (
        lambda x: {"seconds": 5.0},
        {"seconds": AT_LEAST_0, "devices": [*SIZE, None], "device": [*WORD, None]},
    ),
    "perplexity": (
        lambda x: {"model": x.model, "batches": x.batches},
        {"model": THING, "batches": THING},
    ),
    "report_text": (lambda x: {"report": {}}, {"report": [*THING, []], "title": TEXT}),
    "tokenized_bleu": (
        lambda x: {"hypotheses": ["x"], "references": ["x"]},
        {
            "hypotheses": TEXTS,
            "references": TEXTS,
            "language": TEXT,
            "references_are_tokenized": SWITCH,
        },
    ),
    "training_cost": (
        lambda x: {"model": x.model, "batches": x.batches, "updates": 3},
        {
            "model": THING,
            "batches": THING,
            "updates": [*SIZE, None],
            "batches_per_update": [*SIZE, None],
            "seconds": POSITIVE,
            "devices": [*SIZE, None],
            "device": WORD,
            "peak": POSITIVE,
        },
    ),
    "training_flops": (
        lambda x: {"model": x.model, "shapes": [(2, 3, 4)]},
        {"model": THING, "shapes": [None, 3, [3], [(2, 3)], [(2, 3, -1)], [(2, 3, 0.5)]]},
    ),
    "training_memory": (
        lambda x: {"model": x.model, "rows": 2, "source_length": 3, "target_length": 4},
        {
            "model": THING,
            **dict.fromkeys(("rows", "source_length", "target_length"), [*SIZE, None]),
            "dtype": [*WORD, None],
            "accumulate": SWITCH,
        },
    ),
    "transformer_flops": (
        lambda x: {"model": x.model, "source_length": 3, "target_length": 4},
        {
            "model": THING,
            "source_length": [-1, 0.5, "x", None],
            "target_length": [-1, 0.5, "x", None],
        },
    ),
    "write_report": (
        lambda x: {"report": {}, "folder": x.folder},
        {
            "report": THING,
            "folder": PATH,
            "config": OPTIONAL_THING,
            "figures": OPTIONAL_THING,
        },
    ),
    # interop
    "export_ctranslate2": (
        lambda x: {"model": x.model, "tokenizer": x.tokenizer, "folder": x.folder / "export"},
        {
            "model": THING,
            "tokenizer": THING,
            "folder": PATH,
            "quantization": WORD,
            "max_length": [*SIZE, None],
            "overwrite": SWITCH,
            "target_tokenizer": OPTIONAL_THING,
        },
    ),
    "export_hugging_face": (
        lambda x: {"model": x.model, "tokenizer": x.tokenizer, "folder": x.folder / "export"},
        {
            "model": THING,
            "tokenizer": THING,
            "folder": PATH,
            "beam_size": SIZE,
            "max_length": [*SIZE, 1],
            "overwrite": SWITCH,
        },
    ),
    # layers
    "BranchedAttention": (
        lambda x: {"num_heads": 2, "key_dim": 3, "intermediate_dim": 8},
        {
            **dict.fromkeys(("num_heads", "key_dim", "intermediate_dim"), [*SIZE, None]),
            "branch_feed_forward": WORD,
            "activation_dropout": RATE,
        },
    ),
    "FeedForward": (
        lambda x: {"intermediate_dim": 8},
        {"seed": SEED},
    ),
    "MultiHeadAttention": (
        lambda x: {"num_heads": 2, "key_dim": 3},
        {
            "num_heads": [*SIZE, None],
            "key_dim": [*SIZE, None],
            "value_dim": SIZE,
            "dropout": RATE,
            "use_bias": SWITCH,
        },
    ),
    "PositionalEncoding": (lambda x: {}, {}),
    "ResidualConnection": (lambda x: {}, {"normalize_first": SWITCH, "seed": SEED}),
    "SSRU": (lambda x: {}, {"use_bias": SWITCH}),
    "TokenEmbedding": (
        lambda x: {"vocabulary_size": 11, "hidden_dim": 4},
        {"tie_weights": SWITCH, "use_logits_bias": SWITCH},
    ),
    "TransformerDecoderBlock": (
        lambda x: {"num_heads": 2, "intermediate_dim": 8},
        {**OF_BLOCKS, **dict.fromkeys(("branched_decoder", "decoder_cell"), [*WORD, None])},
    ),
    "TransformerEncoderBlock": (lambda x: {"num_heads": 2, "intermediate_dim": 8}, OF_BLOCKS),
    "sinusoid": (
        lambda x: {"positions": np.arange(3), "hidden_dim": 4},
        {"positions": [None, "x"], "hidden_dim": [*SIZE, None], "layout": [*WORD, None]},
    ),
    # models
    "Transformer": (
        lambda x: {"vocabulary_size": 11},
        {
            "attention_window": SIZE,
            "branch_feed_forward": WORD,
            "branched_decoder": [*WORD, None],
            "decoder_cell": [*WORD, None],
            "target_vocabulary_size": SIZE,
            "final_normalization": SWITCH[:-1],
            "suppressed_token_ids": [[-1], [11], [1.5], ["0"], [1], "0", 3, None],
        },
    ),
    # recipes
    "TranslationConfig": (
        lambda x: {"steps": 3},
        {
            "preset": [3, ["x"], None],
            "model_arguments": [None, 3, "x"],
            "tokenizer_algorithm": [*WORD, None],
            "start_from": [3, ["x"]],
            "freeze": [*WORD, "encoder"],
            "best_by": WORD,
            "ema": [0.0, *RATE[:4], "x"],
            "final_model": [*WORD, "best", None],
            "mixture": [3, "a:1", ["a"], ["a:-1"], [3]],
            "symbols": [3, "<2de>", ["2de"], ["<a b>"], [3]],
            "source_prefix": [3, "", " "],
            "strategy": WORD,
            "dtype": [*WORD, None],
            "steps": SIZE,
            "cooldown": [0.0, 0.6, -0.1, math.nan, "x"],
            "bpe_dropout": RATE,
            "label_smoothing": RATE,
            "length_penalty": [-1, math.nan, math.inf, "x", None],
            "seed": COUNT,
            **dict.fromkeys(("recompute", "attention_log"), SWITCH),
            **dict.fromkeys(("minutes", "peak_learning_rate", "checkpoint_minutes"), POSITIVE),
            "learning_rate_factor": [*POSITIVE, None],
            **dict.fromkeys(("replicas", "patience", "checkpoint_updates"), [*SIZE, 10**20]),
            **dict.fromkeys(
                (
                    "vocabulary_size",
                    "bpe_samples",
                    "batch_tokens",
                    "max_length",
                    "max_shapes",
                    "accumulation_steps",
                    "row_multiple",
                    "warmup_steps",
                    "averaged_checkpoints",
                    "bleu_every",
                    "beam_size",
                ),
                [*SIZE, 10**20, None],
            ),
        },
    ),
    "checkpoint_translator": (
        lambda x: {"folder": x.folder / "run"},
        {"folder": PATH, "checkpoint": TEXT},
    ),
    "plan_training": (
        lambda x: {"corpus": x.corpus, "config": x.config},
        {
            "corpus": THING,
            "config": THING,
            "folder": PATH[1:],
            "try_longest": WORD,
        },
    ),
    "prepare_corpus": (
        lambda x: {"corpus": x.corpus, "config": x.config, "output_dir": x.folder / "prepared"},
        {"corpus": THING, "config": THING, "output_dir": PATH, **SPREAD},
    ),
    "score_corpus": (
        lambda x: {
            "model": x.folder / "run",
            "sources": [x.files[0]],
            "translations": [x.files[1]],
            "output_dir": x.folder / "scores",
        },
        {
            "model": PATH,
            **dict.fromkeys(("sources", "translations"), [None, 3, "x", [3], []]),
            "output_dir": PATH,
            "chunk_lines": [*SIZE, None],
            **SPREAD,
        },
    ),
    "translate_corpus": (
        lambda x: {
            "model": x.folder / "run",
            "inputs": [x.files[0]],
            "output_dir": x.folder / "translated",
        },
        {
            "model": PATH,
            "inputs": [None, 3, "x", [3]],
            "output_dir": PATH,
            "n_best": [*SIZE, None],
            "as_json": SWITCH,
            "unique": SWITCH,
            "chunk_lines": [*SIZE, None],
            **SPREAD,
        },
    ),
    "train_translation": (
        lambda x: {"corpus": x.corpus, "config": x.config, "output_dir": x.folder / "run"},
        {
            "corpus": THING,
            "config": THING,
            "output_dir": PATH,
            "finish": SWITCH,
            "callbacks": [3, "x", ["x"], [None]],
        },
    ),
    # training
    "Adam": (
        lambda x: {},
        {
            "learning_rate": [-1.0, math.nan, math.inf, None],
            "beta_1": [*RATE],
            "beta_2": [*RATE],
            "epsilon": [-1.0, math.nan, math.inf, "x"],
            "simplex_learning_rate": [-1.0, math.nan, math.inf, "x"],
            "moving_average": [0.0, *RATE[:4], "x"],
        },
    ),
    "SimplexLearningRate": (
        lambda x: {"hidden_dim": 4, "num_layers": 2},
        {
            **dict.fromkeys(("hidden_dim", "num_layers", "warmup_steps"), [*SIZE, None]),
            "last_step": COUNT[:-1],
        },
    ),
    "CooldownToBudget": (lambda x: {"peak": 0.1, "warmup_steps": 4}, {}),
    "CosineToBudget": (lambda x: {"peak": 0.1, "warmup_steps": 4}, {}),
    "LabelSmoothedCrossentropy": (lambda x: {}, {"subtract_minimum": SWITCH}),
    **dict.fromkeys(("Perplexity", "TokenAccuracy"), (lambda x: {}, {})),
    "LearningRateSchedule": (lambda x: {"hidden_dim": 4}, {}),
    "as_tf_dataset": (lambda x: {"batches": x.batches}, {}),
    "average_checkpoints": (
        lambda x: {"model": x.model, "paths": [x.folder / "checkpoint"]},
        {"model": THING, "paths": [None, 3, "x", [], [3]]},
    ),
    "distribution_scope": (lambda x: {}, {"strategy": WORD, "replicas": SIZE}),
    "initialize_processes": (
        lambda x: {"addresses": "a:1,b:1", "num_processes": 2, "process_index": 0},
        {"addresses": [3, [3], ["x", None]], "num_processes": SIZE, "process_index": COUNT[:-1]},
    ),
    "is_chief": (lambda x: {}, {}),
    "list_checkpoints": (lambda x: {"folder": x.folder}, {"folder": PATH}),
    "load_checkpoint": (
        lambda x: {"model": x.model, "path": x.folder / "checkpoint"},
        {"model": THING, "path": PATH, "allow_average": SWITCH},
    ),
    "save_average": (
        lambda x: {"model": x.model, "path": x.folder / "new", "paths": [x.folder / "checkpoint"]},
        {
            "model": THING,
            "path": PATH,
            "paths": [None, 3, "x", [], [3]],
            "overwrite": SWITCH,
            "average": [*FUNCTION, None],
        },
    ),
    "save_weights_atomically": (
        lambda x: {"model": x.model, "path": x.folder / "new.weights.h5"},
        {"model": THING, "path": PATH},
    ),
    "select_checkpoints": (
        lambda x: {"folder": x.folder},
        {"folder": PATH, "last": [*SIZE, None], "minutes": POSITIVE[1:], "updates": SIZE},
    ),
    # utils
    "tune_memory": (lambda x: {}, {}),
    # visualization
    "SummaryWriter": (
        lambda x: {"folder": x.folder / "logs"},
        {"folder": PATH, "resumes": SWITCH},
    ),
    "attention_entries": (
        lambda x: {"model": x.model, "tokenizer": x.tokenizer, "pairs": [PAIR]},
        {
            "model": THING,
            "tokenizer": THING,
            "pairs": [*TEXTS, [], [["x"]], [["x", 3]]],
            "step": COUNT,
            "target": [*WORD, None],
            "target_ids": [3, "x", []],
            "alignments": [3, "x", []],
            "token_ranks": [3, "x"],
        },
    ),
    "attention_figure": (
        lambda x: {"scores": np.full((2, 2, 2), 0.5), "source_tokens": ["x", "y"]},
        {
            "scores": [None, "x", [1.0], np.full((2, 2, 2), math.nan)],
            "source_tokens": [*TEXTS, ["x"]],
            "target_tokens": [t for t in [*TEXTS, ["x"]] if t is not None],
            "title": TEXT,
            "note": TEXT,
            "heads": [2, -1, "x", [0.5], []],
            "columns": [*SIZE, None],
            "row_label": TEXT,
        },
    ),
    "attention_figures": (
        lambda x: {
            "scores": x.model.attention_scores(*[np.array([[5, 1]])] * 2),
            "source_tokens": ["x", "y"],
            "target_tokens": ["x", "y"],
        },
        {
            "scores": THING,
            "source_tokens": [*TEXTS, ["x"]],
            "target_tokens": TEXTS,
            "note": TEXT,
        },
    ),
    "figure_to_array": (lambda x: {"figure": x.figure}, {"figure": THING}),
    "learning_rate_figure": (
        lambda x: {"schedules": {"x": keras_attention.LearningRateSchedule(8)}, "steps": 5},
        {"schedules": [*THING, {}, {"x": 3}], "steps": [*SIZE, None], "title": TEXT},
    ),
    "paper_attention_figure": (
        lambda x: {"scores": np.full((2, 2, 2), 0.5), "source_tokens": ["x", "y"]},
        {
            "scores": [None, "x", [1.0], np.full((2, 2, 2), math.nan)],
            "source_tokens": [*TEXTS, ["x"]],
            "target_tokens": [t for t in [*TEXTS, ["x"]] if t is not None],
            "query": [2, -1, "x", 0.5],
            "heads": [2, -1, "x", [0.5], []],
        },
    ),
    "positional_encoding_figure": (
        lambda x: {"encoding": np.ones((3, 4))},
        {"encoding": [None, "x", np.ones(3)], "title": TEXT},
    ),
    "save_attention": (
        lambda x: {"path": x.folder / "new.html", "translator": x.translator, "source": "x"},
        {
            "path": PATH,
            "translator": THING,
            "source": [None, 3, b"x", ""],
            "translation": [3, b"x", [3]],
            "overwrite": SWITCH,
        },
    ),
    "show_attention": (
        lambda x: {"translator": x.translator, "source": "x"},
        {"translator": THING, "source": [None, 3, b"x", ""], "translation": [3, b"x", [3]]},
    ),
    "token_ranks": (
        lambda x: {"counts": np.array([3, 1])},
        {"counts": [None, "x", [-1], [0.5], [[1]]]},
    ),
}
ELSEWHERE = {(door.__name__, name) for door, _, table in DOORS for name in table}


def public_callables():
    """Every public callable by its name."""
    found = {}
    for room in keras_attention._PUBLIC_NAMES:
        module = importlib.import_module(f"keras_attention.{room}")
        found |= {name: getattr(module, name) for name in module.__all__}
    assert set(keras_attention.__all__) <= found.keys()
    return {name: value for name, value in found.items() if callable(value)}


CASES = [(name, parameter) for name, (_, table) in TABLE.items() for parameter in table]


def test_every_public_callable_is_in_the_table():
    assert TABLE.keys() == public_callables().keys() - NO_DOORS


@pytest.mark.parametrize("name", TABLE)
def test_every_parameter_is_in_the_table(name):
    door = public_callables()[name]
    parameters = dict(inspect.signature(door).parameters)
    if parameters.pop("args", None) is not None:  # those of the class above
        parameters |= inspect.signature(door.__base__).parameters
    tested = TABLE[name][1].keys() | {p for door, p in ELSEWHERE if door == name}
    assert tested | KERAS_OWN | {"cache", "constraint_state"} >= parameters.keys()
    assert TABLE[name][1].keys() <= parameters.keys()


@pytest.fixture(scope="module")
def x(tmp_path_factory):
    """What right arguments are made of."""
    folder = tmp_path_factory.mktemp("arguments")
    files = [folder / "text.en", folder / "text.de"]
    for file in files:
        file.write_text("a small house\nthe dog sleeps\n")
    held_out = [folder / "held_out.en", folder / "held_out.de"]
    for file in held_out:
        file.write_text("a dog\n")
    (folder / "text.tsv").write_text("a dog\tein Hund\n")
    (folder / "held_out.tsv").write_text("a house\tein Haus\n")
    corpus = corpus_from_files(files, held_out)
    tokenizer = Tokenizer.train(corpus.train.sources(), 280)
    model = Transformer(tokenizer.vocabulary_size, 1, 8, 12, 2)
    model.compile("sgd", "mse")
    model.build()
    store = TokenStore.build(folder / "store", corpus.train, tokenizer, verbose=False)
    batches = TokenBatches(store, 64, max_shapes=2)
    from keras_attention import callbacks, data, decoding, visualization

    (folder / "empty").mkdir()
    constraint = decoding.TextConstraint(decoding.ForcedPrefix(9), len)
    with visualization.SummaryWriter(folder / "events") as writer:
        yield SimpleNamespace(
            folder=folder,
            files=files,
            held_out=held_out,
            tsv=folder / "text.tsv",
            corpus=corpus,
            tokenizer=tokenizer,
            model=model,
            batches=batches,
            writer=writer,
            budget=callbacks.Budget(3),
            checkpoints=callbacks.Checkpoints(folder / "empty"),
            filters=data.Filters(max_words=9),
            constraint=constraint.constraint,
            config=TranslationConfig(steps=3),
            translator=decoding.Translator(model, tokenizer),
            tree=None,
            figure=visualization.learning_rate_figure(
                {"x": keras_attention.LearningRateSchedule(8)}, 5
            ),
        )


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_wrong_values_are_refused(x, name, parameter):
    door = public_callables()[name]
    right, table = TABLE[name]
    for value in table[parameter]:
        before = sorted(x.folder.rglob("*"))
        with pytest.raises((ValueError, TypeError)) as error:
            with contextlib.ExitStack() as stack:
                made = door(**{**right(x), parameter: value})
                if name == "distribution_scope":
                    stack.enter_context(made)
            pytest.fail(f"{parameter}={value!r} was accepted")
        assert parameter in str(error.value), (value, str(error.value))
        assert sorted(x.folder.rglob("*")) == before, value
