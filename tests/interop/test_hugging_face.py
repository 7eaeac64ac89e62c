"""MarianMT folders of transformers: the same logits, the same ids, and clear errors."""

import json
import zipfile

import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.data.presets import load
from keras_attention.interop.hugging_face import read_hugging_face
from keras_attention.utils.files import DamagedFile
from tests.helpers import changed_copies
from tests.interop.conftest import (
    SOURCES,
    TARGETS,
    assert_refused,
    number_of_refused,
    replace,
    save_marian_mt,
    sentence_pieces,
    write_marian_mt,
)
from tests.spec_oracle import SpecOracle

pytestmark = pytest.mark.backends("torch")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install transformers"
)
TOLERANCE = 1e-4

OPTIONS = {
    "shared": {},
    "separate": {"separate": True},
    "untied": {"tie_word_embeddings": False, "activation_function": "relu"},
    "separate_untied": {"separate": True, "tie_word_embeddings": False},
    "unscaled": {"scale_embedding": False, "activation_function": "gelu"},
    "one_more_layer": {"encoder_layers": 1, "decoder_layers": 3},
}


def their_logits(model, source, target):
    with torch.no_grad():
        result = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]))
    return result.logits[0].numpy()


@pytest.mark.parametrize("name", OPTIONS)
def test_logits(name, spm, tmp_path):
    model = write_marian_mt(tmp_path / "model", spm, **OPTIONS[name])
    spec, tokenizer, options, *_ = load(tmp_path / "model", "as_transformers")
    pad = model.config.pad_token_id
    source, target = [5, 9, 2, 30, 17, 1, 0], [pad, 7, 12, 3, 3, 31]
    oracle = SpecOracle(spec)
    logits = oracle.logits(source, target)
    expected = their_logits(model, source, target)
    assert np.std(expected) > 0.5
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)
    assert options == {"beam_size": 3}
    assert spec.suppressed_token_ids == (pad,) and spec.start_token_id == pad
    assert [spec.vocabulary_size, spec.target_vocabulary_size] == [
        tokenizer.vocabulary_size,
        tokenizer.target_vocabulary_size,
    ]
    depth = (model.config.encoder_layers, model.config.decoder_layers)
    assert spec.options()["num_layers"] == depth


def test_as_trained_has_the_positions_of_marian(spm, tmp_path):
    """The same weights: only the table of positions is another."""
    model = write_marian_mt(tmp_path / "model", spm)
    spec = read_hugging_face(tmp_path / "model")
    assert spec.encoder.positions.layout == spec.decoder.positions.layout == "halves"
    rows = torch.from_numpy(spec.positions(spec.encoder, 50))
    for stack in (model.model.encoder, model.model.decoder):
        with torch.no_grad():
            stack.embed_positions.weight.copy_(rows)
    source, target = [5, 9, 2, 0], [model.config.pad_token_id, 7, 12]
    oracle = SpecOracle(spec)
    logits = oracle.logits(source, target)
    np.testing.assert_allclose(logits, their_logits(model, source, target), atol=TOLERANCE)


def test_fine_tuned_padding_is_a_start_token_of_its_own(spm, tmp_path):
    """PyTorch trains the row of the padding token through a tied softmax matrix."""
    folder = tmp_path / "model"
    model = write_marian_mt(folder, spm)
    pad = model.config.pad_token_id
    with torch.no_grad():
        model.model.shared.weight[pad] = 0.7
    save_marian_mt(model, folder)
    spec, tokenizer, *_ = load(folder, "as_transformers")
    assert spec.start_token_id == tokenizer.start_token_id == pad + 1
    assert tokenizer.vocabulary_size == spec.vocabulary_size == pad + 2
    assert spec.suppressed_token_ids == (pad, pad + 1)
    oracle = SpecOracle(spec)
    logits = oracle.logits([5, 9, 2, 0], [pad + 1, 7, 12])
    expected = their_logits(model, [5, 9, 2, 0], [pad, 7, 12])
    np.testing.assert_allclose(logits[:, :-1], expected, atol=TOLERANCE)


@pytest.mark.parametrize("separate", [False, True])
def test_ids_and_texts_of_marian_tokenizer(separate, spm, tmp_path):
    write_marian_mt(tmp_path / "model", spm, separate)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "model")
    preset = load(tmp_path / "model")
    assert preset.card == {"languages": ["en", "de"]}
    ours = preset.tokenizer
    letters = sorted(set("".join([*SOURCES, *TARGETS])) | set("ßxqÉ☃\u00ad ﬁ"))
    random = np.random.default_rng(3)
    texts = ["".join(random.choice(letters, random.integers(1, 30))) for _ in range(300)]
    texts += ["", "  two  spaces ", *SOURCES] + [">>de<< the cat"] * (not separate)
    ids = ours.encode(texts)
    assert [[*row, 0] for row in ids] == theirs(texts)["input_ids"]
    assert ours.encode(texts, side="target") == [
        row[:-1] for row in theirs(text_target=texts)["input_ids"]
    ]
    assert any(ours.unknown_token_id in row for row in ids)
    size = ours.target_vocabulary_size - 1
    rows = [random.integers(2, size, 9).tolist() for _ in range(100)]
    assert ours.decode(rows) == [
        text.strip() for text in theirs.batch_decode(rows, skip_special_tokens=True)
    ]


def test_dropout_is_that_of_the_training(spm, tmp_path):
    folder, known = tmp_path / "model", {"dropout": 0.25, "attention_dropout": 0.05}
    write_marian_mt(folder, spm, **known)
    known |= {"activation_dropout": 0.0}
    assert load(folder).model_options == known
    made = Transformer.from_preset(folder, attention_dropout=0.15).get_config()
    assert [made[name] for name in known] == [0.25, 0.15, 0.0]
    config = json.loads((folder / "config.json").read_text())
    for name in known:
        config[name] = None if name == "dropout" else 0
    (folder / "config.json").write_text(json.dumps(config))
    assert Transformer.from_preset(folder).dropout == 0.0


class Harmful:
    def __reduce__(self):
        return print, ("code was run",)


def test_nothing_is_executed(folder, capsys):
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Harmful()}, folder / "pytorch_model.bin")
    with pytest.raises(DamagedFile, match="pytorch_model.bin.*without running code"):
        load(folder)
    assert "code was run" not in capsys.readouterr().out
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 10_000_000)
    with pytest.raises(DamagedFile, match="larger than the file"):
        load(folder)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "bart"}, "'bart'"),
        ({"model_type": 3}, "'model_type' must be of type str"),
        ({"activation_function": "gelu_new"}, "activation_function='gelu_new'"),
        ({"decoder_ffn_dim": 32}, "decoder_ffn_dim 32"),
        ({"encoder_layers": 2}, "3 encoder layers"),
        ({"encoder_layers": 4}, "3 encoder layers"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "3 heads do not divide"),
        ({"bad_words_ids": [[1, 2]]}, "bad_words_ids"),
        ({"bad_words_ids": [[-5]]}, "suppressed_token_ids"),
        ({"suppress_tokens": [[1]]}, "suppress_tokens ids"),
        ({"min_length": -1}, "'min_length' must be at least 0"),
        ({"repetition_penalty": 1.2}, "config.json': translations with repetition_penalty=1.2"),
        ({"forced_bos_token_id": 3}, "forced_bos_token_id=3"),
        ({"do_sample": True}, "do_sample=True"),
        ({"pad_token_id": 10**9}, "pad_token_id"),
        ({"eos_token_id": [0, 2]}, "'eos_token_id' must be of type int"),
        ({"d_model": None}, "'d_model'"),
        ({"dropout": 1.5}, "dropout in '.*config.json'` must be a .* at least 0 and below 1"),
        ({"attention_dropout": "0.1"}, "attention_dropout in .* must be a finite number"),
        ({"activation_dropout": True}, "activation_dropout in .* must be a finite number"),
        ({"dropout": float("nan")}, "dropout in .* must be a finite number"),
    ],
)
def test_settings_that_cannot_be_represented(changes, message, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    assert_refused(folder, message)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", "[1]", "must hold an object"),
        ("config.json", '{"a', "no JSON"),
        ("vocab.json", '{"a": 1000}', "ids from 0 to"),
        ("vocab.json", '{"a": "b"}', "ids from 0 to"),
        ("vocab.json", '{"a": 2, "b": 2}', "two pieces"),
        ("vocab.json", '{"a": 2}', "'<unk>'"),
        ("vocab.json", None, "lacks vocab.json"),
        ("source.spm", None, "lacks source.spm"),
        ("source.spm", "no model", "source.spm.*no SentencePiece model"),
        ("model.safetensors", "short", "cannot be read"),
        ("model.safetensors", None, "Expected"),
    ],
)
def test_damaged_files(name, content, message, folder):
    replace(folder / name, content)
    assert_refused(folder, message)


def test_flipped_bytes(folder):
    """Each is answered by one error that names the folder, or by a model that is complete and finite."""
    path = folder / "model.safetensors"
    copies = changed_copies(path.read_bytes(), 90, front=3000)
    assert number_of_refused(path, copies) > 30


def test_another_models_tokenizer(folder):
    texts = ["quick foxes jump over lazy hedges", "zebras play jazz"]
    (folder / "target.spm").write_bytes(sentence_pieces(texts, 50))
    assert_refused(folder, r"target\.spm' is another model's")


NEUTRAL = {"repetition_penalty": 1.0, "do_sample": False, "forced_bos_token_id": None}


def test_settings_of_a_search(folder):
    """No n-gram twice, a least length and forbidden tokens: greedy translations are those of transformers."""
    path = folder / "generation_config.json"
    config = json.loads((folder / "config.json").read_text())
    named = ("pad_token_id", "decoder_start_token_id")
    before = json.loads(path.read_text()) | dict.fromkeys(named, config["pad_token_id"])

    def write(**settings):
        path.write_text(json.dumps({**before, "num_beams": 1, **settings}))
        theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        inputs = tokenizer(SOURCES, padding=True, return_tensors="pt")
        with torch.no_grad():
            found = theirs.generate(**inputs, max_new_tokens=12).tolist()
        ours = Translator.from_preset(
            folder, positions="as_transformers", max_extra_length=40, show_progress=False
        )
        # Their limit counts tokens from the source's start, ours beyond its length.
        rows = [best.token_ids[:11] for [best] in ours.translate(SOURCES)]
        for row, full in zip(rows, found, strict=True):
            expected = full[1:]
            expected = expected[: expected.index(0)] if 0 in expected else expected[:11]
            assert list(row) == expected[:11]
        return rows

    plain = write(eos_token_id=[0], **NEUTRAL)
    restricted = write(no_repeat_ngram_size=2, min_length=9)
    assert plain != restricted and all(len(row) >= 8 for row in restricted)
    most = max(token for row in plain for token in row)
    assert all(most not in row for row in write(suppress_tokens=[most]))
    path.write_text(json.dumps({**before, "eos_token_id": [0, 2]}))
    assert_refused(folder, r"generation_config\.json': 'eos_token_id' must be of type int")


def test_weights_of_pytorch_and_in_several_files(spm, tmp_path):
    folder = tmp_path / "model"
    model = write_marian_mt(folder, spm)
    whole = read_hugging_face(folder).weights()
    (folder / "model.safetensors").unlink()

    def assert_whole():
        found = read_hugging_face(folder).weights()
        assert found.keys() == whole.keys()
        for path, weight in found.items():
            np.testing.assert_array_equal(weight, whole[path], path)

    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert_whole()
    (folder / "pytorch_model.bin").unlink()
    model.save_pretrained(folder, max_shard_size="5KB")
    parts = sorted(folder.glob("model-*.safetensors"))
    assert len(parts) > 2 and not (folder / "model.safetensors").exists()
    assert_whole()
    parts[1].unlink()
    assert_refused(folder, f"names '{parts[1].name}', which is not there")
    (folder / "model.safetensors.index.json").unlink()
    assert_refused(folder, r"holds no weights. Expected: .*There are: config\.json, .*model-00001")
