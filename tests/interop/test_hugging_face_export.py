"""Folders for transformers: its logits and ids, CTranslate2's converter, and back again."""

import functools
import json
import shutil
import unicodedata

import keras
import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator, export_hugging_face
from keras_attention.data.normalization import normalize
from keras_attention.data.presets import load
from keras_attention.spec import SpecError
from keras_attention.utils.files import DamagedFile
from tests.helpers import log_probabilities, sentence_piece_model
from tests.interop.conftest import SOURCES, TARGETS, write_marian_mt

pytestmark = pytest.mark.backends("torch")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install transformers"
)
TOLERANCE = 1e-4
# transformers' epsilon, except in one.
VARIANTS = {
    "paper": {},
    "pre_norm": {"normalize_first": True},
    "biases": {"use_attention_bias": True, "activation": "silu", "use_logits_bias": True},
    "untied": {"tie_weights": False, "activation": "gelu"},
    "narrow": {"key_dim": 3, "value_dim": 2, "num_layers": (3, 1), "use_attention_bias": True},
    "own_start": {"start_token_id": 9, "suppressed_token_ids": (0, 9, 12)},
    "own_epsilon": {"layer_norm_epsilon": 1e-6},
    "own_epsilon_pre_norm": {"layer_norm_epsilon": 1e-6, "normalize_first": True},
    "own_epsilon_counts": {"layer_norm_epsilon": 1e-6, "small": 0.2},
    "own_epsilon_biases": {
        "layer_norm_epsilon": 1e-6,
        "use_attention_bias": True,
        "num_layers": (2, 1),
        "target_vocabulary_size": 280,
    },
    "own_epsilon_untied": {"layer_norm_epsilon": 1e-6, "tie_weights": False, "num_layers": (1, 2)},
    "two_vocabularies": {"target_vocabulary_size": 280, "use_logits_bias": True},
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([*SOURCES, *TARGETS], vocabulary_size=290)


def make_model(tokenizer, small=1.0, **options):
    """A model whose weights are all random; `small` is a factor of the streams between normalisations."""
    sizes = {"num_layers": 2, "hidden_dim": 20, "intermediate_dim": 28, "num_heads": 5}
    model = Transformer(
        tokenizer.vocabulary_size, **{"layer_norm_epsilon": 1e-5, **sizes, **options}
    )
    random = np.random.default_rng(3)
    for weight in model.weights:
        if "seed" not in weight.path and weight.path.rsplit("/")[-1] not in ("kappa", "alpha"):
            to_stream = weight.path.endswith(
                ("gamma", "beta", "output/kernel", "outer/kernel", "outer/bias")
            )
            is_last = "decoder_block_2/feed_forward_residual" in weight.path
            factor = small if to_stream and not is_last else 1.0
            weight.assign(factor * (weight + random.normal(0.0, 0.3, weight.shape)))
    return model


class Sides:
    """A tokenizer with another vocabulary for the target, as far as an export asks."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.target_vocabulary_size = target.vocabulary_size

    def __getattr__(self, name):
        return getattr(self.source, name)

    def id_to_token(self, token_id, side="target"):
        return getattr(self, side).id_to_token(token_id)

    def sentence_piece_models(self):
        return {
            side: getattr(self, side).sentence_piece_models()[side] for side in ("source", "target")
        }


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """A function that exports the model of a name, once: see `export`."""
    return functools.cache(lambda name: export(name, tokenizer, tmp_path_factory.mktemp(name)))


def export(name, tokenizer, parent):
    """The model, the folder of its export, and transformers' model and tokenizer of that."""
    folder = parent / "model"
    options = VARIANTS[name]
    if "target_vocabulary_size" in options:
        target = Tokenizer.train(TARGETS, vocabulary_size=280)
        options = {**options, "target_vocabulary_size": target.vocabulary_size}
        tokenizer = Sides(tokenizer, target)
    model = make_model(tokenizer, **options)
    if "start_token_id" in options:
        tokenizer = Started(tokenizer, options["start_token_id"])
    export_hugging_face(model, tokenizer, folder, beam_size=3, max_length=64)
    theirs, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    return model, folder, theirs.eval(), transformers.AutoTokenizer.from_pretrained(folder)


class Started(Sides):
    def __init__(self, tokenizer, start):
        super().__init__(tokenizer, tokenizer)
        self.start_token_id = start


@pytest.mark.parametrize("name", VARIANTS)
def test_logits(name, tokenizer, exported):
    model, folder, theirs, _ = exported(name)
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]
    target_size = model.target_vocabulary_size
    vocabulary = json.loads((folder / "vocab.json").read_text())
    source = [5, 9, 260, 271, 17, 261, 1]
    pad, start = theirs.config.pad_token_id, theirs.config.decoder_start_token_id
    mapped = [vocabulary[names[i]] for i in source]
    target = [7, 12, 265, 4]
    # Of one vocabulary, ours has padding first, end, unknown; theirs end, unknown, the rest.
    order = [1, 2, *range(3, target_size), 0]
    theirs_of = {old: new for new, old in enumerate(order)}
    inputs = [start, *(theirs_of[i] for i in target)]
    with torch.no_grad():
        result = (
            theirs(input_ids=torch.tensor([mapped]), decoder_input_ids=torch.tensor([inputs]))
            .logits[0]
            .numpy()
        )
    expected = keras.ops.convert_to_numpy(
        model(
            {
                "encoder_token_ids": np.array([source]),
                "decoder_token_ids": np.array([[model.start_token_id, *target]]),
            }
        )
    )[0]
    allowed = [i for i in range(target_size) if i not in model.suppressed_token_ids]
    columns = [theirs_of[i] for i in allowed]
    assert np.std(expected) > 0.5
    np.testing.assert_allclose(result[:, columns], expected[:, allowed], atol=TOLERANCE)
    # Nothing else takes a part of the probability.
    others = [i for i in range(result.shape[1]) if i not in columns]
    assert pad in others or pad == columns[-1]
    assert (result[:, others] < -1e8).all()


def test_ids_and_texts_of_marian_tokenizer(tokenizer, exported):
    *_, theirs = exported("paper")
    letters = sorted(set("".join([*SOURCES, *TARGETS])) | set("ßxqÉ☃\u00ad ﬁ\u200b\t\u00a0가"))
    random = np.random.default_rng(3)
    texts = ["".join(random.choice(letters, random.integers(1, 30))) for _ in range(300)]
    texts += [unicodedata.normalize("NFD", text) for text in [*TARGETS, "Müller ÄÖÜ Ǖ 가각"]]
    # As it is typed: a doubling, then the vowel.
    texts += [
        "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f \u0651\u064b",
        "\u05e9\u05c1\u05b8\u05d1\u05bc\u05b7\u05ea",
    ]
    order = [1, 2, *range(3, tokenizer.vocabulary_size), 0]
    ids = {old: new for new, old in enumerate(order)}
    found = theirs(texts)["input_ids"]
    assert found == [[*map(ids.get, row), 0] for row in tokenizer.encode(texts)]
    assert theirs.batch_decode(found, skip_special_tokens=True) == [normalize(t) for t in texts]


EPSILONS = [name for name in VARIANTS if name.startswith("own_epsilon")]


def test_pieces_that_are_called_as_special_tokens_are_there(tmp_path):
    """The end token of the SentencePiece model has another name, and its piece "</s>" is text."""
    names = {"pad_piece": "[PAD]", "eos_piece": "[EOS]", "unk_piece": "[UNK]"}
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "user_defined_symbols": ["</s>"]}
    tokenizer = Tokenizer(sentence_piece_model(SOURCES * 5, 40, **names, **ids))
    export_hugging_face(make_model(tokenizer), tokenizer, tmp_path / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    vocabulary = json.loads((tmp_path / "model" / "vocab.json").read_text())
    # OPUS-MT's order; padding has a logit, and so a row, too.
    assert sorted(vocabulary.values()) == [*range(tokenizer.vocabulary_size + 1)]
    assert [theirs(text)["input_ids"][-1] for text in SOURCES] == [0] * len(SOURCES)


@pytest.mark.parametrize("name", ["paper", "pre_norm", "untied", "two_vocabularies", *EPSILONS])
def test_out_and_in_again(name, exported):
    """The weights come back bit by bit, in the order of the new ids."""
    options, (model, folder, *_) = VARIANTS[name], exported(name)
    preset = load(folder)
    assert preset.options == {"beam_size": 3}
    ours, again = model.spec().weights(), preset.spec.weights()
    for path, weight in ours.items():
        weight = np.asarray(keras.ops.convert_to_numpy(weight))
        found = again[path]
        if path.startswith(("embedding.", "target_embedding.")):
            if "reverse" in path:
                weight, found = weight.T, found.T
            size = len(weight)
            # Padding, the last id for both sides, may be farther behind in the source's table.
            is_source = "target_embedding.embeddings" in again and path.startswith("embedding.")
            rows = size - 1 if is_source else size
            weight, found = weight[[*range(1, size), 0]][:rows], found[:rows]
        np.testing.assert_array_equal(found, weight, err_msg=path)
    # transformers has a bias everywhere; those that ours lacks are zero.
    added = again.keys() - ours.keys() - {path for path in again if path.endswith("logits_bias")}
    assert bool(added) is (not options.get("use_attention_bias"))
    assert not any(again[path].any() for path in added)


@pytest.mark.parametrize("name", ["own_epsilon", "own_epsilon_pre_norm", "own_epsilon_biases"])
def test_what_transformers_saves_again_is_the_same(name, exported, tmp_path):
    """It does not save the positions of Marian's models."""
    _, _, theirs, _ = exported(name)
    theirs.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    inputs = {
        "input_ids": torch.tensor([[5, 9, 17, 0]]),
        "decoder_input_ids": torch.tensor([[7, 4]]),
    }
    with torch.no_grad():
        np.testing.assert_array_equal(again(**inputs).logits, theirs(**inputs).logits)


@pytest.mark.parametrize("factor", [0, 3, -2, 2048, "4", True])
def test_refuses_factors_that_no_export_has(factor, exported, tmp_path):
    shutil.copytree(exported("own_epsilon")[1], tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    settings = json.loads(path.read_text())
    assert settings["keras_attention"]["residual_factor"] == 4
    settings["keras_attention"]["residual_factor"] = factor
    path.write_text(json.dumps(settings))
    with pytest.raises(DamagedFile, match=r"config\.json' is damaged.*take keras_attention\.json"):
        load(tmp_path / "model")
    (tmp_path / "model" / "keras_attention.json").unlink()
    with pytest.raises(ValueError, match="residual_factor"):
        load(tmp_path / "model")


def test_others_may_read_the_weights_as_they_may_the_other_files(exported):
    folder = exported("own_epsilon")[1]
    modes = {file.stat().st_mode for file in folder.iterdir() if file.is_file()}
    assert len(modes) == 1


def test_the_same_translations_again(tokenizer, exported):
    model, folder, *_ = exported("paper")
    options = {"max_extra_length": 5, "show_progress": False, "engine": "torch"}
    wanted = Translator(model, tokenizer, beam_size=3, **options)
    again = Transformer.from_preset(folder), Tokenizer.from_preset(folder)
    found = Translator(*again, beam_size=3, **options)
    for ours, theirs in zip(wanted.translate(SOURCES), found.translate(SOURCES), strict=True):
        assert theirs[0].text == ours[0].text
        assert theirs[0].score == pytest.approx(ours[0].score, abs=1e-5)


def test_a_marian_model_goes_out_as_it_came(spm, tmp_path):
    original = write_marian_mt(tmp_path / "came", spm)
    preset = load(tmp_path / "came", "as_transformers")
    export_hugging_face(preset.spec, preset.tokenizer, tmp_path / "gone")
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "gone").state_dict()
    for name, weight in original.state_dict().items():
        if name == "final_logits_bias":
            assert again[name][0, -1] == -1e9
            np.testing.assert_array_equal(again[name][0, :-1], weight[0, :-1])
        elif "embed_positions" not in name:
            np.testing.assert_array_equal(again[name], weight, err_msg=name)
    files = [json.loads((tmp_path / name / "vocab.json").read_text()) for name in ("came", "gone")]
    assert files[0] == files[1]


@pytest.mark.parametrize("name", ["paper", "pre_norm", "own_epsilon"])
def test_scores_of_ctranslate2s_converter(name, tokenizer, exported, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    model, folder, *_ = exported(name)
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    converter.convert(str(tmp_path / "converted"))
    translator = ctranslate2.Translator(str(tmp_path / "converted"), intra_threads=1)
    source, target = tokenizer.tokens(SOURCES[1]), tokenizer.tokens(TARGETS[1])
    found = translator.score_batch([[*source, "</s>"]], [target])[0].log_probs
    ids = [*tokenizer.encode(TARGETS[1]), 1]
    expected = log_probabilities(model, [*tokenizer.encode(SOURCES[1]), 1], ids)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


REFUSED = {
    "position_layout='halves'": {"position_layout": "halves"},
    "position_layout='learned'": {"position_layout": "learned", "max_length": 30},
    "an SSRU": {"decoder_cell": "ssru"},
    "'elu'": {"activation": "elu"},
    "RMSNorm": {"normalization": "rms"},
    "has gates": {"gated_feed_forward": True},
    "K=6": {"key_dim": 6},
    "0.001": {"layer_norm_epsilon": 1e-3},
    "final_normalization=True": {"final_normalization": True},
    "embeddings that are normalised": {"embedding_normalization": True},
}


@pytest.mark.parametrize("problem", REFUSED)
def test_refuses_by_name_what_transformers_lacks(problem, tokenizer, tmp_path):
    model = make_model(tokenizer, **REFUSED[problem])
    with pytest.raises((ValueError, SpecError), match=problem):
        export_hugging_face(model, tokenizer, tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_refuses_other_tokenizers(tokenizer, tmp_path):
    model = make_model(tokenizer)
    words = tmp_path / "words"
    words.write_text("".join(f"w{i}\n" for i in range(tokenizer.vocabulary_size - 3)))
    with pytest.raises(ValueError, match="must be a 'bpe' one.*algorithm='presegmented'"):
        export_hugging_face(model, Tokenizer.from_vocabulary(words), tmp_path / "model")
    with pytest.raises(ValueError, match="do not belong together"):
        export_hugging_face(model, Tokenizer.train(TARGETS, 285), tmp_path / "model")
    assert not (tmp_path / "model").exists()
