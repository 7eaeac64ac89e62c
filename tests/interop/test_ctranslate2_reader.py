"""CTranslate2's folders: its own probabilities and translations, and clear errors."""

import json
import shutil
import struct

import numpy as np
import pytest
import sentencepiece

from keras_attention import Tokenizer, Translator, export_ctranslate2
from keras_attention.data.presets import load
from keras_attention.interop.ctranslate2_reader import read_ctranslate2
from keras_attention.spec.files import save_spec
from keras_attention.spec.parts import PositionsSpec
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.files import DamagedFile
from tests.helpers import changed_copies, sentence_piece_model
from tests.interop.conftest import (
    SOURCES,
    TARGETS,
    assert_refused,
    number_of_refused,
    pieces_of,
    replace,
    write_marian_mt,
)
from tests.models.numpy_transformer import position
from tests.spec_oracle import SpecOracle, random_spec

pytestmark = pytest.mark.backends("torch")
ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="CTranslate2 is not installed: pip install 'ctranslate2>=4.8'"
)
TOLERANCE = 1e-4
SOURCE = ["<blank>", "<s>", "</s>", *(f"a{i}" for i in range(9))]
TARGET = ["<blank>", "<s>", "</s>", *(f"b{i}" for i in range(6)), "<unk>"]


def open_translator(folder):
    return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def write_model(
    folder,
    pre_norm=True,
    quantization=None,
    shared=False,
    scale=True,
    rms_norm=False,
    gated=False,
    activation="SWISH",
    positions=None,
    **config,
):
    """Random weights, other vocabularies and biases everywhere, by CTranslate2's own writer.

    `scale` multiplies the embeddings of the source: a number, or True for the root of their width.
    """
    from ctranslate2.specs import common_spec, transformer_spec

    random = np.random.default_rng(4)
    dim, inner = 12, 20
    spec = transformer_spec.TransformerSpec.from_config(
        (2, 1),
        3,
        pre_norm=pre_norm,
        activation=common_spec.Activation[activation],
        ffn_glu=gated,
        rms_norm=rms_norm,
    )

    def array(*shape, scale=0.5):
        return random.normal(0.0, scale, shape).astype("float32")

    def linear(layer, rows, columns):
        layer.weight, layer.bias = array(rows, columns), array(rows)

    def norm(layer):
        layer.gamma = array(dim, scale=0.8)
        if not rms_norm:
            layer.beta = array(dim)

    def attention(layer, rows):
        for part, size in zip(layer.linear, rows, strict=True):
            linear(part, size, dim)
        norm(layer.layer_norm)

    target = SOURCE if shared else TARGET
    spec.encoder.embeddings[0].weight = array(len(SOURCE) + 1, dim)
    size = len(target) + (target is SOURCE)
    spec.decoder.embeddings.weight = array(size, dim)
    linear(spec.decoder.projection, size, dim)
    for stack in (spec.encoder, spec.decoder):
        if positions is not None:
            stack.position_encodings.encodings = positions
        if pre_norm:
            norm(stack.layer_norm)
        for layer in stack.layer:
            attention(layer.self_attention, (3 * dim, dim))
            if stack is spec.decoder:
                attention(layer.attention, (dim, 2 * dim, dim))
            linear(layer.ffn.linear_0, inner, dim)
            linear(layer.ffn.linear_1, dim, inner)
            if gated:
                linear(layer.ffn.linear_0_noact, inner, dim)
            norm(layer.ffn.layer_norm)
    spec.encoder.scale_embeddings = scale
    spec.register_source_vocabulary([*SOURCE, "<unk>"])
    spec.register_target_vocabulary([*SOURCE, "<unk>"] if shared else TARGET)
    for name, value in config.items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


SENTENCES = [["a1", "a5", "a5", "a0", "nothing"], ["a8"], ["a2", "a3", "a4", "a7", "a6", "a1"]]
TRANSLATIONS = [["b4", "b0", "b5"], ["b1", "b1", "what"], ["b3"]]


def check_scores(folder, targets=TRANSLATIONS):
    """The log-probability of every token of given targets."""
    spec, tokenizer, *_ = load(folder)
    theirs = open_translator(folder).score_batch(SENTENCES, targets)
    oracle, spread = SpecOracle(spec), []
    for source, target, expected in zip(SENTENCES, targets, theirs, strict=True):
        end = [tokenizer.end_token_id]
        ids = tokenizer.encode(" ".join(source)) + end * tokenizer.ends_source
        wanted = tokenizer.encode(" ".join(target), side="target") + end
        found = oracle.log_probabilities(ids, wanted)
        np.testing.assert_allclose(found, expected.log_probs, atol=TOLERANCE, rtol=TOLERANCE)
        spread.extend(found)
    assert np.std(spread) > 0.5


@pytest.mark.parametrize(
    "pre_norm, config",
    [
        (True, {}),
        (False, {"add_source_eos": True, "add_source_bos": True, "layer_norm_epsilon": 0.1}),
        (True, {"decoder_start_token": "</s>"}),
    ],
)
def test_scores_with_two_vocabularies(pre_norm, config, tmp_path):
    """Its positions are computed, and count from 1."""
    write_model(tmp_path / "model", pre_norm, **config)
    check_scores(tmp_path / "model")
    found = load(tmp_path / "model")
    spec, tokenizer, *_ = found
    assert (spec.vocabulary_size, spec.target_vocabulary_size) == (14, 11)
    assert (tokenizer.vocabulary_size, tokenizer.target_vocabulary_size) == (14, 11)
    assert tokenizer.ends_source == ("add_source_eos" in config)
    assert spec.options()["num_layers"] == (2, 1)
    assert found.model_options == {"dropout": 0.0}  # It is not known.


# What quickmt-train sets if nobody asks for something else.
MODERN = {"rms_norm": True, "gated": True, "activation": "GELU", "add_source_bos": True}


SMALL = {"positions": np.random.default_rng(1).normal(0.0, 1e-3, (9, 12)).astype("float32")}


@pytest.mark.parametrize(
    "changes",
    [
        {"shared": True},  # one vocabulary, but two tables
        # CTranslate2 turns the same stored numbers into float32.
        *({"quantization": kind} for kind in ("int8", "int8_float16", "float16", "bfloat16")),
        *({"quantization": kind, "decoder_start_token": "</s>"} for kind in ("int8", "int16")),
        {"quantization": "int8", "scale": 900.0},  # more than 8 bits hold
        {**MODERN, **SMALL},
        {**MODERN, **SMALL, "pre_norm": False},
        # Inputs so small that the epsilon of an RMSNorm, another than a layer norm's, decides.
        {**MODERN, **SMALL, "activation": "SWISH", "scale": 1e-3},
    ],
    ids=lambda changes: "+".join(map(str, changes)),
)
def test_scores(changes, tmp_path):
    write_model(tmp_path / "model", **changes)
    letter = "a" if "shared" in changes else "b"
    targets = [[token.replace("b", letter) for token in each] for each in TRANSLATIONS]
    check_scores(tmp_path / "model", targets)


@pytest.mark.parametrize("engine", ["torch", "numba", "numpy"])
def test_a_folder_as_quickmt_train_writes_it(engine, of_pieces, spm):
    """Two vocabularies and tokenizers, the paper's positions, half precision, sources without an end."""
    encodings = np.array([position(t, 12, PositionsSpec()) for t in range(40)], "float32")
    more = {"activation": "SWISH"} if engine == "numpy" else {}  # which has no GELU
    folder = of_pieces(positions=encodings, quantization="float16", **{**MODERN, **more})
    for name, model in zip(("src.spm.model", "tgt.spm.model"), spm, strict=True):
        (folder / name).write_bytes(model)
    options = {"engine": engine, "beam_size": 1, "max_extra_length": 20, "show_progress": False}
    translator = Translator.from_preset(folder, **options)
    theirs = open_translator(folder).translate_batch(
        [translator.tokenizer.tokens(text) for text in SOURCES],
        beam_size=1,
        max_decoding_length=16,
        min_decoding_length=0,
    )
    found = [
        [translator.tokenizer.id_to_token(i, "target") for i in best.token_ids]
        for [best] in translator.translate(SOURCES)
    ]
    assert [tokens[:16] for tokens in found] == [result.hypotheses[0] for result in theirs]
    assert len({tuple(tokens) for tokens in found}) == len(SOURCES)


def old_format(new, old, integers):
    """Write a model again in the format of 2019: no types, no aliases, one number of heads."""
    model = read_variables(new)
    shutil.copytree(new, old)
    (old / "config.json").unlink()
    with open(old / "model.bin", "wb") as file:

        def text(value):
            file.write(struct.pack("<H", len(value) + 1) + value.encode() + b"\0")

        file.write(struct.pack("<I", 2))
        text("TransformerBase")
        file.write(struct.pack("<I", 3))
        names = {n.replace("embeddings_0", "embeddings"): v for n, v in model.items() if v.ndim}
        names["num_heads"] = np.int8(3)
        names["activation"] = np.int8(2)
        for name, value in [*names.items()]:
            if value.ndim and value.dtype == "float32" and name.endswith("weight") and integers:
                names[name] = np.round(value * 1000).astype("int16")
        file.write(struct.pack("<I", len(names)))
        for name, value in names.items():
            text(name)
            file.write(struct.pack("<B", value.ndim) + struct.pack(f"<{value.ndim}I", *value.shape))
            file.write(struct.pack("<BI", value.itemsize, value.size) + value.tobytes())


def read_variables(folder):
    """A reader of the present format, written from CTranslate2's writer."""
    types = ("float32", "int8", "int16", "int32", "float16")
    content, place, found = (folder / "model.bin").read_bytes(), 0, {}

    def take(format):
        nonlocal place
        values = struct.unpack_from(f"<{format}", content, place)
        place += struct.calcsize(f"<{format}")
        return values

    def text():
        return take(f"{take('H')[0]}s")[0][:-1].decode()

    take("I"), text(), take("I")
    for _ in range(take("I")[0]):
        name, axes = text(), take("B")[0]
        shape = take(f"{axes}I")
        kind, size = take("BI")
        found[name] = np.frombuffer(take(f"{size}s")[0], types[kind]).reshape(shape)
    assert take("I")[0] == 0 and place == len(content)
    return found


@pytest.mark.parametrize("integers", [False, True])
def test_old_format(integers, tmp_path):
    write_model(tmp_path / "new")
    old_format(tmp_path / "new", tmp_path / "old", integers)
    check_scores(tmp_path / "old")


@pytest.mark.parametrize("positions", ["as_trained", "as_transformers"])
def test_marian_mt_by_its_own_converter(positions, marian_mt, tmp_path):
    """The start is a zero embedding, which the folder lacks; sources end with the end token."""
    folder = tmp_path / "model"
    converter = ctranslate2.converters.TransformersConverter(
        str(marian_mt), copy_files=["source.spm", "target.spm"]
    )
    converter.convert(str(folder))
    spec, tokenizer, *_ = load(folder, positions)
    layout = {"as_trained": "halves", "as_transformers": "interleaved"}[positions]
    assert spec.encoder.positions.layout == spec.decoder.positions.layout == layout
    assert spec.start_token_id == spec.pad_token_id == 0 and spec.suppressed_token_ids == (0,)
    assert tokenizer.decode(tokenizer.encode("das Haus", side="target")) == "das Haus"
    if positions == "as_trained":
        return
    texts = ["das alte Haus", "Hund", "x", "ein Hund"]
    theirs = open_translator(folder).score_batch(
        [[*tokenizer.tokens(text), "</s>"] for text in SOURCES],
        [tokenizer.tokens(text, "target") for text in texts],
    )
    # The folder of transformers gives the same model: ids are others.
    for model, end in ((load(folder, positions), 1), (load(marian_mt, positions), 0)):
        oracle, own = SpecOracle(model.spec), model.tokenizer
        for source, text, expected in zip(SOURCES, texts, theirs, strict=True):
            ids = own.encode(source), own.encode(text, side="target")
            found = oracle.log_probabilities(*([*row, end] for row in ids))
            np.testing.assert_allclose(found, expected.log_probs, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_first": True, "activation": "gelu", "widths": (2, 5)},
        {"widths": (7, 5), "bias": True},
        {"layout": "halves", "bias": True, "activation": "silu"},
        {"layout": "learned", "epsilon": 0.1},
        {"tied": False, "normalize_first": True},
        {"embedding_norm": True, "normalize_first": True, "layout": "learned"},
        {"gated": True, "rms": True, "activation": "silu", "normalize_first": True},
    ],
)
def test_an_export_of_ours_comes_back(options, tmp_path):
    """CTranslate2 computes what NumPy does, also of padding inside the target; and so does what is read."""
    (tmp_path / "words").write_text("\n".join(f"w{i}" for i in range(3, 23)))
    tokenizer = Tokenizer.from_vocabulary(tmp_path / "words")
    wanted = random_spec(depth=(2, 2), **options)
    folder = export_ctranslate2(wanted, tokenizer, tmp_path / "model")
    found = read_ctranslate2(folder)
    source, target = [5, 9, 4, 1], [3, 20, 0, 8, 11, 1]
    expected = SpecOracle(wanted).log_probabilities(source, target)
    ours = SpecOracle(found.spec).log_probabilities(source, target)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    # It adds end tokens itself.
    tokens = [[[tokenizer.id_to_token(i) for i in ids[:-1]]] for ids in (source, target)]
    theirs = open_translator(folder).score_batch(*tokens)[0].log_probs
    np.testing.assert_allclose(theirs, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert np.std(expected) > 0.5  # Else any model would do.
    assert found.source_pieces == [tokenizer.id_to_token(i) for i in range(23)]
    assert found.ends_source and not found.spec.suppressed_token_ids
    if "widths" not in options:  # else narrow heads are filled up
        assert found.spec.options() == wanted.options()
        weights = wanted.weights()
        if "tied" in options:  # The row of padding is never read.
            weights["embedding.embeddings"][0] = 0.0
        for path, weight in weights.items():
            np.testing.assert_array_equal(found.spec.weights()[path], weight, path)


def of_sentence_piece(texts, **options):
    """A small "bpe" tokenizer, of whose pieces most are bytes."""
    return Tokenizer(sentence_piece_model(texts * 5, 300, model_type="bpe", **options))


@pytest.mark.parametrize("number", [1, 2])
def test_small_tokenizers_with_bytes_come_back(number, tmp_path):
    """One whose ids are those of another program, and one for each side."""
    ids = {"pad_id": 3, "eos_id": 2, "unk_id": 0, "bos_id": 1} if number == 1 else {"bos_id": -1}
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, **ids, "byte_fallback": True}
    source = target = of_sentence_piece(SOURCES + TARGETS, **ids)
    options = {"suppressed_token_ids": (source.pad_token_id,)}
    if number == 2:
        target = of_sentence_piece([text.upper() for text in TARGETS], **ids)
        options["target_vocabulary"] = target.vocabulary_size
    special = {name: getattr(source, name) for name in ("pad_token_id", "end_token_id")}
    spec = random_spec(
        source.vocabulary_size, **special, **options, start_token_id=source.pad_token_id
    )
    folder = export_ctranslate2(spec, source, tmp_path / "model", target_tokenizer=target)
    found = Translator.from_preset(folder, engine="numpy", beam_size=1, max_extra_length=3)
    oracle, ended = SpecOracle(spec), source.end_token_id
    wanted = [
        target.decode(oracle.greedy([*ids, ended], len(ids) + 4)) for ids in source.encode(SOURCES)
    ]
    assert found(SOURCES) == wanted


@pytest.mark.parametrize("separate", [False, True])
def test_an_export_of_marian_mt_comes_back(separate, spm, tmp_path):
    """Its tokenizer has two sides: one object is the tokenizer of both."""
    pytest.importorskip("transformers")
    write_marian_mt(tmp_path / "theirs", spm, separate)
    wanted = load(tmp_path / "theirs")
    folder = export_ctranslate2(wanted.spec, wanted.tokenizer, tmp_path / "model")
    export_ctranslate2(wanted.spec, wanted.tokenizer, folder, overwrite=True)
    found = load(folder)
    translations = ["das alte Haus ist rot", "ein Hund", "x ½", "die Katze"]
    theirs = open_translator(folder).score_batch(
        [wanted.tokenizer.tokens(text) for text in SOURCES],
        [wanted.tokenizer.tokens(text, side="target") for text in translations],
    )
    # CTranslate2 gives the padding token, which is never produced, no share of the probability.
    for model in (wanted, found):
        tokenizer, oracle = model.tokenizer, SpecOracle(model.spec)
        end = tokenizer.end_token_id
        for source, target, expected in zip(SOURCES, translations, theirs, strict=True):
            ids = tokenizer.encode(source), tokenizer.encode(target, side="target")
            ours = oracle.log_probabilities(*([*row, end] for row in ids))
            np.testing.assert_allclose(ours, expected.log_probs, atol=TOLERANCE, rtol=TOLERANCE)
    assert found.tokenizer.decode(found.tokenizer.encode("das Haus", side="target")) == "das Haus"


def test_spaces_separate_tokens_without_a_tokenizer(tmp_path):
    write_model(tmp_path / "model")
    tokenizer = load(tmp_path / "model").tokenizer
    assert tokenizer.decode(tokenizer.encode("b1  b0 b5", side="target")) == "b1 b0 b5"
    ids = tokenizer.encode("a1 </s> <blank>")
    assert [tokenizer.id_to_token(i, "source") for i in ids] == ["a1", "<unk>", "<blank>"]


@pytest.mark.parametrize("piece", ["a@@", "\uffeda", "\u2581a", "\u0120a"])
def test_subwords_need_a_tokenizer(piece, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", [*SOURCE, piece])
    write_model(tmp_path / "model")
    assert_refused(tmp_path / "model", "no tokenizer that fits.*none is there")


@pytest.fixture
def of_pieces(spm, tmp_path, monkeypatch):
    """Writes a model whose vocabularies are the pieces of SentencePiece models, and further tokens."""

    def write(models=spm, shared=False, more=(), **options):
        sides = [[p for p in pieces_of(model) if p not in SOURCE] for model in models]
        if shared:
            sides[0] = [*dict.fromkeys([*sides[0], *sides[1]])]
        monkeypatch.setitem(globals(), "SOURCE", ["<blank>", "<s>", "</s>", *more, *sides[0][1:]])
        monkeypatch.setitem(globals(), "TARGET", ["<blank>", "<s>", "</s>", *sides[1]])
        write_model(tmp_path / "model", shared=shared, **options)
        return tmp_path / "model"

    return write


@pytest.mark.parametrize(
    "shared, names",
    [
        (False, ("de.bpe", "en.bpe")),  # Content tells the sides.
        (False, ("spm.a.model", "sub/b.spm")),
        (True, ("source.spm", "target.spm")),
        (True, ("vocab.src", "vocab.trg")),
        (True, ("tokenizer/tokenizer.model", "target_tokenizer/tokenizer.model")),
    ],
)
def test_tokenizers_are_found_by_their_pieces(shared, names, spm, of_pieces):
    folder = of_pieces(shared=shared)
    names = [name.replace("sub/", "tokenizer/") for name in names]
    for name, model in zip(names, spm, strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(model)
    (folder / "LICENSE").write_text("Something else.")
    tokenizer = load(folder).tokenizer
    for side, model, texts in zip(("source", "target"), spm, (SOURCES, TARGETS), strict=True):
        peer = sentencepiece.SentencePieceProcessor(model_proto=model)
        expected = [peer.encode(text, out_type=str) for text in texts]
        assert [tokenizer.tokens(text, side=side) for text in texts] == expected
    # Nobody knows which of two models is the source's, or that the other one is gone.
    if shared:
        (folder / names[1]).rename(folder / "b.model")
        (folder / names[0]).rename(folder / "a.model")
        assert_refused(folder, r"several SentencePiece models.*a\.model, b\.model.*source\.spm and")
    (folder / ("b.model" if shared else names[1])).unlink()
    assert_refused(folder, "no tokenizer that fits.*its pieces are not those of the vocabulary")


@pytest.mark.parametrize("name", ["joint.spm.model", "bpe.model", "../sentencepiece.model"])
def test_one_tokenizer_for_both_sides(name, spm, of_pieces):
    """Argos Translate has its model above the folder `model`."""
    folder = of_pieces((spm[0], spm[0]), shared=True)
    (folder / name).write_bytes(spm[0])
    tokenizer = load(folder).tokenizer
    assert tokenizer.tokens(SOURCES[0]) == tokenizer.tokens(SOURCES[0], side="target")
    assert tokenizer.decode(tokenizer.encode(SOURCES[0]), side="target") == SOURCES[0]


def test_tokenizers_that_do_not_fit(spm, of_pieces):
    folder = of_pieces(shared=True)
    assert_refused(folder, r"Looked for: .* source\.spm and target\.spm.*none is there")
    for name, content in (("bpe.model", b"#version: 0.2"), ("tokenizer.model", spm[0])):
        (folder / name).write_bytes(content)
    assert_refused(folder, "bpe.model: it is no SentencePiece model; tokenizer.model: its pieces")
    (folder / "target.spm").write_bytes(b"")
    with pytest.raises(DamagedFile, match=r"target\.spm"):
        load(folder)
    Tokenizer.train(SOURCES, 290).save(folder / "tokenizer")
    assert_refused(folder, "tokenizer' is another model's")


@pytest.mark.parametrize("code", ["__en__", "eng_Latn", "en_XX"])
def test_codes_of_languages_are_refused(code, spm, of_pieces):
    folder = of_pieces(more=[code])
    for name, model in zip(("source.spm", "target.spm"), spm, strict=True):
        (folder / name).write_bytes(model)
    assert_refused(
        folder, f"codes of languages, such as '{code}'"
    )  # of two vocabularies, or mBART's


def test_a_package_of_argos_says_its_languages(tmp_path):
    write_model(tmp_path / "model")
    for said, card in (
        ({"from_code": "en", "to_code": "pt"}, {"languages": ["en", "pt"]}),
        ({"from_code": "eng", "to_code": 7}, {}),
        (["en", "pt"], {}),
    ):
        (tmp_path / "metadata.json").write_text(json.dumps(said))
        assert load(tmp_path).card == card


def test_aren():
    """A trained model in the format of 2019, with separate vocabularies."""
    folder = cache_folder("ct2-aren")
    if not (folder / "model.bin").is_file():
        pytest.skip(
            f"'{folder}' is not there: copy it from github.com/OpenNMT/CTranslate2, "
            "tests/data/models/v2/aren-transliteration"
        )
    spec, tokenizer, *_ = load(folder)
    random, names = np.random.default_rng(0), range(4, tokenizer.vocabulary_size - 1)
    letters = [tokenizer.id_to_token(i, "source") for i in names]
    words = [[*random.choice(letters, random.integers(2, 9))] for _ in range(100)]
    theirs = open_translator(folder).translate_batch(
        words, beam_size=1, length_penalty=0, min_decoding_length=0, return_scores=True
    )
    oracle = SpecOracle(spec)
    for word, result in zip(words, theirs, strict=True):
        ids = tokenizer.encode(" ".join(word))
        found = oracle.greedy(ids, 60)
        assert [tokenizer.id_to_token(i) for i in found] == result.hypotheses[0]
        score = oracle.log_probabilities(ids, [*found, tokenizer.end_token_id]).sum()
        np.testing.assert_allclose(result.scores[0], score, atol=TOLERANCE)


def test_damaged_models(tmp_path):
    """Each is answered by one error that names the folder, or by a model that is complete and finite."""
    folder = tmp_path / "model"
    write_model(folder)
    path = folder / "model.bin"
    content = path.read_bytes()
    assert number_of_refused(path, changed_copies(content, 60, front=400)) > 20
    path.write_bytes(content + b"more")
    assert_refused(folder, "4 bytes too many")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", "3", "must hold an object"),
        ("config.json", '{"unk_token": 3}', "'unk_token' must be of type str"),
        ("config.json", '{"eos_token": "nothing"}', "lacks the end token 'nothing'"),
        ("config.json", '{"decoder_start_token": "nothing"}', "lacks the start token 'nothing'"),
        ("config.json", '{"layer_norm_epsilon": true}', "layer_norm_epsilon"),
        (
            "config.json",
            '{"layer_norm_epsilon": NaN}',
            "epsilon must be positive and finite, not nan",
        ),
        ("config.json", '{"layer_norm_epsilon": 1e999}', "epsilon must be .*, not inf"),
        ("config.json", '{"layer_norm_epsilon": -0.5}', "epsilon must be .*, not -0.5"),
        ("source_vocabulary.json", '["a"]', "2 tokens, its table 13 rows"),
        ("source_vocabulary.json", '["a", "a"]', "each of them once"),
        ("source_vocabulary.json", "[1]", "must hold tokens"),
        ("target_vocabulary.json", None, "lacks its vocabulary"),
        ("model.bin", "", "empty"),
        ("model.bin", "PK is no model of theirs", "format version"),
    ],
)
def test_wrong_files(name, content, message, tmp_path):
    folder = tmp_path / "model"
    write_model(folder)
    replace(folder / name, content)
    assert_refused(folder, message)


def test_models_that_cannot_be_represented(tmp_path):
    write_model(tmp_path / "model")
    (tmp_path / "other").mkdir()
    for name in ("source_vocabulary.json", "target_vocabulary.json", "config.json"):
        shutil.copy(tmp_path / "model" / name, tmp_path / "other")
    content = (tmp_path / "model" / "model.bin").read_bytes()
    for old, new, message in (
        (b"TransformerSpec", b"WhisperMadeSpec", "'WhisperMadeSpec', not an encoder-decoder"),
        (b"decoder/alibi\0", b"decoder/alib2\0", None),
        (b"encoder/activation\0", b"encoder/activat2on\0", "activat2on"),
    ):
        (tmp_path / "other" / "model.bin").write_bytes(content.replace(old, new, 1))
        if message is None:
            load(tmp_path / "other")  # a flag that is off
        else:
            assert_refused(tmp_path / "other", message)


def test_a_spec_that_was_read_can_be_saved(tmp_path):
    write_model(tmp_path / "model")
    save_spec(load(tmp_path / "model").spec, tmp_path / "spec")
    assert json.loads((tmp_path / "spec" / "spec.json").read_text())
