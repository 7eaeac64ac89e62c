"""Wrong values for every parameter of every public callable: each is refused, and the error names it.

They follow from the parameter's annotation: values of other types, None where it has none, and numbers out of
the range that it gives, or out of that of their kind. `MORE` has what an annotation does not say, `OWN` what
takes the place of its values.
"""

import contextlib
import dataclasses
import importlib
import inspect
import math
import re
import typing

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt

import keras_attention
from keras_attention import TokenBatches, Tokenizer, TokenStore, Transformer, corpus_from_files
from keras_attention.callbacks import Budget, Checkpoints
from keras_attention.data import Filters
from keras_attention.data.joints import Joints
from keras_attention.decoding import ForcedPrefix, Translator
from keras_attention.evaluation import Sentences, System
from keras_attention.recipes import TranslationConfig
from keras_attention.utils.arguments import kinds_of, rules
from keras_attention.visualization import SummaryWriter

# They are checked before anything is computed. What tensors may hold is in test_wrong_values.py.
pytestmark = pytest.mark.backends("torch")

# By the type of a parameter, without None: the first pattern that fits.
PATH = r"(str \| os\.PathLike\[str\]|PathLike|Path)"
KINDS = {
    "bool": [0, "yes"],
    "int": [0, -1, 2.5, math.nan, True, "3", [1]],
    "float": [0, -1.0, math.nan, math.inf, "1", [1.0]],
    "str": [3, b"x", ["x"]],
    r".*Literal\[.*": ["no such word", 3, ["x"]],
    PATH: [3, "", b"x", ["x"], "a\0b"],
    rf"Sequence\[{PATH}\]": [3, "x", [3]],
    r"(Sequence|Iterable)\[(str|tuple\[str, str\])\]": ["one text", 3, [1], ["x", None]],
    "Texts": [3, b"x"],
    ".*": [3, "x"],  # a model, a tokenizer, batches, a function, ...
}
# Of those that have no annotated range: from 0 on.
FROM_0 = {"end_token_id", "pad_token_id"}
ANY_SIGN = {
    f"{name}.pad_token_id" for name in ("LabelSmoothedCrossentropy", "Perplexity", "TokenAccuracy")
}
WORDS = {"algorithm", "normalization", "engine", "precision", "strategy"}
WORDS |= {"tokenize", "smoothing", "dtype", "baseline", "load_corpus.name"}
NO_FIGURE = [None, "x", [1.0], np.full((2, 2, 2), math.nan)]
IDS = [None, 3, "x", [[0.5]], [[-1]]]

# By the name of a parameter, or of the callable and the parameter.
MORE = {
    "AttentionLog.alignments": [[], [None, None]],
    "AttentionLog.token_ranks": [[[1.0]]],
    "BranchedAttention.intermediate_dim": [None],
    "Checkpoints.stateful": [[3]],
    "Corpus.extra": [{"x": 3}],
    "RequiredPhrases.end_token_id": [11],
    "RequiredPhrases.joints": [Joints.of_pieces(["a"])],
    "TokenEmbedding.pad_token_id": [11],
    "Tokenizer.model": [b"no model"],
    "Tokenizer.source_prefix": ["", "<2de>"],
    "Transformer.end_token_id": [11, 0],
    "Transformer.pad_token_id": [11, 1],  # 1 ends sentences
    "Transformer.start_token_id": [11],
    "TransformerDecoder.pad_token_id": [11],
    "TranslationConfig.final_model": ["best"],
    "TranslationConfig.freeze": ["encoder"],
    "TranslationConfig.source_prefix": ["", " "],
    "as_tf_dataset.batches": [[], np.ones(2)],
    "attention_entries.alignments": [[]],
    "attention_entries.alternatives": [[]],
    "attention_entries.target_ids": [[]],
    "banned": [[" "]],
    "learning_rate_figure.schedules": [{}, {"x": 3}],
    "pairs": [[], [["x"]], [["x", 3]]],
    "paths": [[]],
    "report_text.report": [[]],
    "score_corpus.sources": [[]],
    "score_corpus.translations": [[]],
    "source": [""],
    "source_tokens": [["x"]],
    "systems": [
        {},
        {"a": ["x"]},
        *({"a": ["x"], "b": wrong} for wrong in ("one text", None, 3, [1], ["x", None])),
    ],
    "target_tokens": [["x"]],
    "train_translation.callbacks": [["x"], [None]],
    "translation": [[3]],
}
OWN = {
    **dict.fromkeys(("translate_corpus.phrases", "translate_corpus.prefixes"), [[], [3], 3]),
    "Adam.learning_rate": [-1.0, math.nan, math.inf, None],
    "Adam.simplex_learning_rate": [-1.0, math.nan, math.inf, "x"],
    "Corpus.parts": [3, "x", {"a": 3}],
    "Corpus.vocabulary": [3, "", b"x"],
    "ParallelText.pairs": [None, 3, iter([("x", "y")])],
    "System.checkpoints": [3, [3]],
    "activation": [0, math.nan, True, 3, "x", []],  # None is none, as in Keras
    "addresses": [3, [3], ["x", None]],
    **dict.fromkeys(
        ("kernel_initializer", "bias_initializer", "positions_initializer"), [3, "x", math.nan]
    ),
    "attention_figures.target_tokens": ["one text", None, 3, [1], ["x", None]],
    "corpus_from_files.test": [3, "x", ["x"], [3, 4]],
    "corpus_from_files.train": [None, 3, "x", ["x"], [3, 4], [None, None]],
    "corpus_from_files.validation": [3, "x", ["x"], [3, 4]],
    "evaluation_report.systems": [None, 3, "x", {}, {"one": 3}],
    "counts": [None, "x", [-1], [0.5], [[1]]],
    "encoding": [None, "x", np.ones(3)],
    "export_hugging_face.beam_size": [0, -1, 2.5, math.nan, True, "3", [1]],
    "export_hugging_face.max_length": [0, -1, 2.5, math.nan, True, "3", [1], 1],
    "export_onnx.beam_size": [0, -1, 2.5, math.nan, True, "3", [1]],
    "export_onnx.max_length": [0, -1, 2.5, math.nan, True, "3", [1], 1],
    "export_saved_model.max_length": [0, -1, 2.5, math.nan, True, "3", [1], 1],
    "fit_resumably.callbacks": [None, 3, [3]],
    "heads": [2, -1, "x", [0.5], []],
    "max_lengths": [None, "x", [0.5], [[3]], [-1]],
    "mixture": [3, "a:1", ["a"], ["a:-1"], [3]],
    "num_layers": [0, -1, 2.5, math.nan, True, "3", [1], None],
    "attention_figure.scores": NO_FIGURE,
    "paper_attention_figure.scores": NO_FIGURE,
    "positions": [None, "x"],
    "query": [2, -1, "x", 0.5],
    "ray": [None, 3, []],
    "shapes": [None, 3, [3], [(2, 3)], [(2, 3, -1)], [(2, 3, 0.5)]],
    "check_export.texts": ["one text", 3, [1], ["x", None], [], [" "]],
    "suppressed_token_ids": [[-1], [11], [1.5], ["0"], [1], "0", 3, None],
    "symbols": [3, "<2de>", ["2de"]],
    "transformer_flops.source_length": [-1, 0.5, "x", None],
    "transformer_flops.target_length": [-1, 0.5, "x", None],
    "try_longest": ["no such word", 3, ["x"]],
    **dict.fromkeys(("encoder_token_ids", "decoder_token_ids", "target_token_ids"), IDS),
}

# Results that callables return, and errors that they raise: no doors.
NO_DOORS = {
    *("BeamSearchResult", "CorpusScore", "DamagedFile", "NonFiniteTraining"),
    *("PairedDifference", "Plan", "SpecError", "Stop", "TrainingStopped"),
    *("Translation", "VerifiedPreset"),
    # Plain declarations of what a model has; `TransformerSpec.check` says what is wrong with them.
    *("AttentionSpec", "SSRUSpec", "BlockSpec", "DenseSpec"),
    *("EmbeddingSpec", "FeedForwardSpec", "NormSpec", "PositionsSpec", "StackSpec"),
    "TransformerSpec",
}
# What Keras itself interprets, and says so in its own words; any text for display; what may be anything.
NOT_CHECKED = {
    *("activity_regularizer", "attention_axes", "output_shape", "kwargs"),
    *(
        "bias_constraint",
        "MultiHeadAttention.bias_initializer",
        "bias_regularizer",
        "embeddings_initializer",
    ),
    *("kernel_constraint", "MultiHeadAttention.kernel_initializer", "kernel_regularizer"),
    "options",  # of `Translator`, which checks them
    *("cache", "constraint_state"),
    "sinusoid.dtype",
}
WITH_WHAT_CAME = {"models", "layers"}  # Rooms whose messages also say what was received.


def public_callables():
    """Every public callable by its name."""
    found = {}
    for room in keras_attention._PUBLIC_NAMES:
        module = importlib.import_module(f"keras_attention.{room}")
        found |= {name: getattr(module, name) for name in module.__all__}
    assert set(keras_attention.__all__) <= found.keys()
    return {name: value for name, value in found.items() if callable(value)}


DOORS = {name: door for name, door in public_callables().items() if name not in NO_DOORS}


def parameters_of(door):
    parameters = dict(inspect.signature(door).parameters)
    if "args" in parameters:  # those of the class above
        parameters |= inspect.signature(door.__base__).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if not {name, f"{door.__name__}.{name}"} & NOT_CHECKED
        and name != "args"
        # A name with a default is for display alone, but of a report.
        and (name != "name" or parameter.default is parameter.empty or door.__name__ == "Sentences")
    }


def owner_of(door):
    """What has the annotations of a callable."""
    is_plain_class = isinstance(door, type) and not dataclasses.is_dataclass(door)
    return door.__init__ if is_plain_class else door


def out_of_range(kind, *bounds):
    """What an annotated number must not be."""
    yield from KINDS[kind.__name__][2:]
    for bound in bounds:
        (edge,) = dataclasses.astuple(bound)
        yield {Ge: edge - 1, Gt: edge, Le: edge + 1, Lt: edge}[type(bound)]


def wrong_values(door, parameter):
    """What the hint and the name say that a parameter must not be."""
    name, own = parameter.name, f"{door.__name__}.{parameter.name}"
    for key in (own, name):
        if key in OWN:
            return OWN[key]
    kinds = kinds_of(rules(owner_of(door)).get(name))
    annotated = [kind for kind in kinds if typing.get_origin(kind) is typing.Annotated]
    hint = parameter.annotation
    if annotated:
        kind, *laws = typing.get_args(annotated[0])
        if not any(map(callable, laws)):
            none = [None] * (type(None) not in kinds)
            return [*out_of_range(kind, *laws), *none, *MORE.get(own, [])]
        hint = kind | None if type(None) in kinds else kind
    hint = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    hint = hint.replace("collections.abc.", "").replace("typing.", "")
    kind = next(kind for kind in KINDS if re.fullmatch(kind, hint.removesuffix(" | None")))
    values = [*KINDS[kind]]
    if kind in ("int", "float"):
        is_share = name.endswith("dropout")
        if is_share or {name, own} & FROM_0:
            values.remove(0)
        if own in ANY_SIGN:
            values.remove(-1)
        values += [1.0] * is_share
    if kind == "str" and {name, own} & WORDS:
        values.append("no such word")
    may_be_none = hint.endswith("None") or hint.startswith("Optional") or parameter.default is None
    values += [None] * (not may_be_none)
    return [*values, *MORE.get(own, MORE.get(name, []))]


def test_every_exception_is_one_of_a_parameter():
    names = {
        name
        for door in DOORS.values()
        for each in inspect.signature(door).parameters
        for name in (each, f"{door.__name__}.{each}")
    }
    unknown = {*FROM_0, *ANY_SIGN, *WORDS, *MORE, *OWN} - names
    assert not unknown and DOORS.keys().isdisjoint(NO_DOORS)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The folder of all; and right values by the name of a parameter, or of a callable and one."""
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
    (folder / "empty").mkdir()
    checkpoints = Checkpoints(folder / "empty")
    ids = np.array([[5, 1]])
    schedules = {"x": keras_attention.LearningRateSchedule(8)}
    with SummaryWriter(folder / "events") as writer:
        yield (
            folder,
            {
                **dict.fromkeys(("source_language", "target_language", "description", "name"), "x"),
                **dict.fromkeys(("hypotheses", "references", "sources"), ["x"]),
                **dict.fromkeys(("source_tokens", "target_tokens"), ["x", "y"]),
                **dict.fromkeys(("rows", "source_length", "target_length", "updates", "steps"), 3),
                **dict.fromkeys(("folder", "path", "output_dir"), folder / "new"),
                **dict.fromkeys(("flops", "seconds", "peak"), 1.0),
                **dict.fromkeys(
                    ("encoder_token_ids", "decoder_token_ids", "target_token_ids"), ids
                ),
                "num_heads": 2,
                "key_dim": 3,
                "hidden_dim": 4,
                "intermediate_dim": 8,
                "vocabulary_size": 11,
                "num_layers": 2,
                "warmup_steps": 4,
                "patience": 2,
                "start_token_id": 0,
                "end_token_id": 1,
                "max_lengths": np.array([3, 4]),
                "phrases": {"S": (2, 3)},
                "step": len,
                "cache": {},
                "start": len,
                "model": model,
                "tokenizer": tokenizer,
                "batches": batches,
                "store": store,
                "corpus": corpus,
                "text": corpus.train,
                "train": corpus.train,
                "synthetic": False,
                "validation": corpus.validation,
                "filters": Filters(max_words=9),
                "report": {},
                "writer": writer,
                "budget": Budget(3),
                "callbacks": [checkpoints],
                "checkpoints": checkpoints,
                "paths": [folder / "checkpoint"],
                "translate": len,
                "monitor": "val_bleu",
                "pairs": [("a dog", "a house")],
                "source": "x",
                "config": TranslationConfig(steps=3),
                "preset": "demo_en_de",
                "schedules": schedules,
                "constraint": ForcedPrefix(9),
                "translator": Translator(model, tokenizer),
                "systems": {"a": ["x"], "b": ["y"]},
                "shapes": [(2, 3, 4)],
                "counts": ids[0],
                "encoding": np.ones((3, 4)),
                "scores": np.full((2, 2, 2), 0.5),
                "positions": np.arange(3),
                "BranchedAttention.intermediate_dim": 8,
                "Budget.steps": 3,
                "TokenStore.folder": store.folder,
                "Tokenizer.model": tokenizer._model,
                "TranslationConfig.steps": 3,
                "attention_figures.scores": model.attention_scores(ids, ids),
                "check_export.folder": folder,
                "check_export.texts": ["a dog"],
                "checkpoint_translator.folder": folder / "run",
                "corpus_from_files.train": files,
                "corpus_from_files.validation": held_out,
                "corpus_from_tsv.train": folder / "text.tsv",
                "corpus_from_tsv.validation": folder / "held_out.tsv",
                "evaluation_report.systems": {"one": System(len)},
                "evaluation_report.text": Sentences(["x"], ["x"]),
                "System.load": len,
                "System.checkpoints": [folder / "checkpoint"],
                "initialize_processes.addresses": "a:1,b:1",
                "initialize_processes.num_processes": 2,
                "initialize_processes.process_index": 0,
                "list_checkpoints.folder": folder,
                "load_corpus.name": "demo",
                "score_corpus.model": folder / "run",
                "score_corpus.sources": [files[0]],
                "score_corpus.translations": [files[1]],
                "select_checkpoints.folder": folder,
                "translate_corpus.inputs": [files[0]],
                "tokenized_bleu.language": "de",
                "translate_corpus.model": folder / "run",
                "write_report.folder": folder,
            },
        )


@pytest.mark.parametrize("name", DOORS)
def test_wrong_values_are_refused(right, name):
    folder, known = right
    door, before = DOORS[name], sorted(folder.rglob("*"))
    signature = inspect.signature(door).parameters
    given = {
        each: known.get(f"{name}.{each}", known.get(each))
        for each, parameter in signature.items()
        if f"{name}.{each}" in known
        or parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    for parameter in parameters_of(door).values():
        for value in wrong_values(door, parameter):
            with pytest.raises((ValueError, TypeError)) as error:
                with contextlib.ExitStack() as stack:
                    made = door(**{**given, parameter.name: value})
                    if name == "distribution_scope":
                        stack.enter_context(made)
                pytest.fail(f"{parameter.name}={value!r} was accepted")
            said = str(error.value)
            assert parameter.name in said, (parameter.name, value, said)
            assert "Received" in said or door.__module__.split(".")[1] not in WITH_WHAT_CAME, said
            assert sorted(folder.rglob("*")) == before, (parameter.name, value)
