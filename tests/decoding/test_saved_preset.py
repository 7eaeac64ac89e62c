"""A translator as a preset: everything comes back, on every backend; every damage is found and named."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest

from keras_attention import (
    Restrictions,
    Sampling,
    Tokenizer,
    Transformer,
    Translator,
    verify_preset,
)
from keras_attention.cli.main import main
from keras_attention.cli.models import keras_translator
from keras_attention.data.formats.own_preset import MODEL_OPTIONS
from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.presets import is_preset, load
from keras_attention.recipes import bulk
from keras_attention.spec import SpecError
from keras_attention.utils.files import sha256_of, write_signed_json
from keras_attention.utils.signed_json import signed_json
from tests.decoding.letters import assert_alike
from tests.helpers import numpy
from tests.models.test_options import PAIRWISE, RICH, model_of

BACKEND = keras.backend.backend()
TEXTS = ["ein Hund", "", "das Haus ist klein und der Hund sieht es", "der kleine Hund"]
MANIFEST = "keras_attention.json"


def tokenizer_of(model):
    """Numbers as words: with the ids of the model, and two sides if it has two vocabularies."""
    sizes = [model.vocabulary_size, model.target_vocabulary_size]
    pieces = [[f"{side}{i}" for i in range(size)] for side, size in zip("st", sizes, strict=True)]
    ids = {
        f"{name}_token_id": getattr(model, f"{name}_token_id") for name in ("pad", "start", "end")
    }
    sides = pieces[:1] if sizes[0] == sizes[1] else pieces
    return Tokenizer(ImportedPieces.model(sides, [None, None], ids, [2, 2]), "imported")


def plain_translator(**options):
    tokenizer = Tokenizer.train([*TEXTS, "a small house, a dog"], vocabulary_size=290)
    sizes = {"num_layers": (2, 1), "hidden_dim": 12, "intermediate_dim": 20, "num_heads": 3}
    given = {"dropout": 0.25, "attention_dropout": 0.125, "activation_dropout": 0.5}
    model = Transformer(tokenizer.vocabulary_size, **sizes, **given, recompute=True, seed=5)
    random = np.random.default_rng(11)
    for weight in model.trainable_weights:
        weight.assign(numpy(weight) + 0.3 * random.standard_normal(weight.shape))
    return Translator(model, tokenizer, **{"beam_size": 3, "max_extra_length": 6, **options})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    card = {"languages": ["de", "en"], "license": "cc0-1.0", "description": "Small & random."}
    folder = tmp_path_factory.mktemp("saved") / "small"
    return plain_translator().save_to_preset(folder, card=card)


def same_weights(ours, theirs):
    ours, theirs = ours.weights(), theirs.weights()
    assert list(ours) == list(theirs)
    for path, weight in ours.items():
        np.testing.assert_array_equal(numpy(weight), numpy(theirs[path]), err_msg=path)


# On PyTorch each: what is read differs by the option, not by the backend. The first nine rows hold every
# value of each option, and 426 of the 445 pairs.
COMING_BACK = {"rich": RICH, **(dict(enumerate(PAIRWISE[:9])) if BACKEND == "torch" else {})}


@pytest.mark.parametrize("options", COMING_BACK.values(), ids=map(str, COMING_BACK))
def test_every_option_comes_back(options, tmp_path):
    model = model_of(**options)
    tokenizer = tokenizer_of(model)
    folder = tmp_path / "preset"
    translator = Translator(model, tokenizer, beam_size=2, length_penalty=0.7)
    translator.save_to_preset(folder, sample=[])  # Nothing need be compiled.
    found = load(folder)
    assert found.spec.options() == model.spec().options()
    same_weights(found.spec, model.spec())
    assert found.tokenizer.fingerprint() == tokenizer.fingerprint()
    assert found.options == {"beam_size": 2, "length_penalty": 0.7, "max_extra_length": 50}
    same_weights(Transformer.from_preset(folder).spec(), model.spec())
    same_weights(keras.saving.load_model(folder).spec(), model.spec())


def test_translations_and_the_models_own_options(saved):
    original, found = plain_translator(), Translator.from_preset(saved)
    assert_alike(found.translate(TEXTS), original.translate(TEXTS), rtol=1e-6)
    model = Transformer.from_preset(saved)
    assert (model.dropout, model.recompute) == (0.25, True)
    for name in MODEL_OPTIONS:
        assert model.get_config()[name] == original.model.get_config()[name] is not None, name
    assert Transformer.from_preset(saved, dropout=0.5).dropout == 0.5
    assert Tokenizer.from_preset(saved).encode(TEXTS) == original.tokenizer.encode(TEXTS)
    # What is read can be saved again: nothing is lost, without a Keras model too.
    again = found.save_to_preset(saved.parent / "again")
    for name in ("model.weights.h5", "assets/tokenizer/tokenizer.model"):
        ours, theirs = ((folder / name).read_bytes() for folder in (again, saved))
        assert len(ours) == len(theirs), name
    ours, theirs = (
        json.loads((folder / "config.json").read_bytes())["config"] for folder in (again, saved)
    )
    assert {**ours, "name": ""} == {**theirs, "name": ""}  # Keras numbers its models.
    assert load(again).model_options == load(saved).model_options
    assert load(again).card["license"] == "cc0-1.0"


@pytest.mark.backends("torch")
def test_what_is_known_of_the_model_is_kept(saved, tmp_path):
    """By other search settings, and by each way to a Keras model."""
    first = dataclasses.replace(Translator.from_preset(saved), longest_source=9)
    folder = first.save_to_preset(tmp_path / "first", sample=[])
    known = load(folder)
    assert known.longest_source == 9 and known.card["license"] == "cc0-1.0"
    assert known.model_options["dropout"] == 0.25
    translators = [
        dataclasses.replace(Translator.from_preset(folder), beam_size=2),
        keras_translator(str(folder), beam_size=2),
        bulk._translator(bulk._sent(folder), beam_size=2),
    ]
    for translator in translators:
        assert translator.beam_size == 2 and translator.longest_source == 9
        assert translator.model_options == known.model_options
    for number, translator in enumerate(translators[:2]):
        again = load(translator.save_to_preset(tmp_path / str(number), sample=[]))
        assert again.card == {**known.card, "search": again.card["search"]}
        assert again.longest_source == 9 and again.model_options == known.model_options


def test_verify_translates_the_sample_on_every_route(saved):
    found = verify_preset(saved)
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert found.files == len(files) and found.sentences == 3
    assert found.engines[-2:] == (BACKEND, "plain") and found.difference < 1e-4


def resigned(folder, change):
    """Changes the manifest, and signs it and all files again, as somebody with bad intent would."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest.pop("checksum")
    for name in manifest["sha256"]:
        manifest["sha256"][name] = sha256_of(folder / name)
        manifest["size"][name] = (folder / name).stat().st_size
    change(manifest)
    write_signed_json(folder / MANIFEST, manifest)


@pytest.mark.backends("torch")
def test_a_sample_that_comes_out_otherwise(saved, tmp_path):
    for change in ({"score": 0.5}, {"target_ids": [7]}):
        folder = shutil.copytree(saved, tmp_path / "".join(change))
        resigned(folder, lambda manifest, change=change: manifest["sample"][1].update(change))
        with pytest.raises(ValueError, match=f"'{folder}': .* translates .* but the preset did"):
            verify_preset(folder)
    folder = shutil.copytree(saved, tmp_path / "tokens")
    resigned(folder, lambda manifest: manifest["sample"][0]["source_ids"].append(3))
    with pytest.raises(ValueError, match="other tokens"):
        verify_preset(folder)


@pytest.mark.backends("torch")
def test_float16_halves_the_matrices(saved, tmp_path):
    original = plain_translator()
    folder = original.save_to_preset(tmp_path / "half", weights_dtype="float16")
    spec, exact = load(folder).spec.weights(), original.model.spec().weights()
    for path, weight in spec.items():
        value = numpy(exact[path])
        expected = value.astype("float16").astype("float32") if value.ndim > 1 else value
        np.testing.assert_array_equal(weight, expected, err_msg=path)
    sizes = [(path / "model.weights.h5").stat().st_size for path in (folder, saved)]
    numbers = sum(weight.size for weight in spec.values() if weight.ndim > 1)
    assert sizes[0] < sizes[1] - 1.9 * numbers
    assert verify_preset(folder).difference < 1e-4
    same_weights(keras.saving.load_model(folder).spec(), load(folder).spec)
    kernel = original.model.encoder_blocks[1].feed_forward.inner.kernel
    kernel.assign(numpy(kernel) * 1e6)
    with pytest.raises(ValueError, match="encoder.blocks.1.feed_forward.inner.kernel.*too large"):
        original.save_to_preset(tmp_path / "large", weights_dtype="float16")
    assert not (tmp_path / "large").exists()


def places(value, path=()):
    """The path of every value in a JSON object, up to three of each list."""
    yield path
    if isinstance(value, list):
        value = dict(enumerate(value[:3]))
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*path, name))


@pytest.mark.backends("torch")
def test_a_signed_manifest_of_the_wrong_types(saved, tmp_path):
    """Each is answered by an error that names the folder, or changes nothing that is used."""
    folder = shutil.copytree(saved, tmp_path / "preset")
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest.pop("checksum")
    random, refused = np.random.default_rng(2), 0
    wrong = (None, -1, 10**30, "x" * 9, [], {}, [[]], {"part": "os"}, True, {"part": []}, 1e308)
    everywhere = list(places(manifest))[1:]
    for place in everywhere:
        changed = json.loads(json.dumps(manifest))
        inner = changed
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = wrong[random.integers(len(wrong))]
        (folder / MANIFEST).write_bytes(signed_json(changed))
        try:
            Translator.from_preset(folder)
        except (ValueError, OSError) as error:
            assert str(folder) in str(error), place
            refused += 1
    assert len(everywhere) > 200 and refused > 0.7 * len(everywhere)


def external(file, name, other):
    import h5py

    file[name] = h5py.ExternalLink(other, name)


def virtual(file, name, other):
    import h5py

    layout = h5py.VirtualLayout(shape=(12,), dtype="float32")
    layout[:] = h5py.VirtualSource(other, name, shape=(12,))
    file.create_virtual_dataset(name, layout)


def objects(file, name, other):
    import h5py

    file.create_dataset(name, data=["abc"] * 12, dtype=h5py.string_dtype())


def outside(file, name, other):
    file.create_dataset(name, shape=(12,), dtype="float32", external=[(other, 0, 48)])


def dataset(**options):
    return lambda file, name, other: file.create_dataset(name, **options)


HOSTILE = {
    "external": external,
    "virtual": virtual,
    "outside": outside,
    "unstored": dataset(shape=(2**45,), dtype="float32"),
    "packed": dataset(shape=(2**30,), dtype="float32", chunks=(2**20,), compression="gzip"),
    "objects": objects,
    "integers": dataset(data=np.ones(12, "int32")),
    "nan": dataset(data=np.full(12, np.nan, "float32")),
    "wide": dataset(data=np.ones(13, "float32")),
    "group": lambda file, name, other: file.create_group(name),
    "absent": lambda file, name, other: None,
}


@pytest.mark.backends("torch")
@pytest.mark.parametrize("put", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arrays(saved, tmp_path, put):
    import h5py

    folder = shutil.copytree(saved, tmp_path / "preset")
    name = json.loads((folder / MANIFEST).read_bytes())["spec"]["decoder"]["blocks"][0]
    name = name["feed_forward_norm"]["gamma"]
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        assert file[name].shape == (12,)
        del file[name]
        put(file, name, str(saved / "model.weights.h5"))
    resigned(folder, lambda manifest: None)
    with pytest.raises(ValueError, match=r"preset/model\.weights\.h5'"):
        load(folder)


@pytest.mark.backends("torch")
def test_other_folders(saved, tmp_path):
    with pytest.raises(ValueError, match="'as_trained'"):
        load(saved, "as_transformers")
    keras_model = tmp_path / "theirs"
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]).save(keras_model, zipped=False)
    for opened in (Translator.from_preset, Transformer.from_preset, Tokenizer.from_preset):
        with pytest.raises(ValueError, match=f"'{keras_model}' is a model of Keras.*load_model"):
            opened(keras_model)
    with pytest.raises(ValueError, match=f"nowhere' is no preset .* no {MANIFEST}"):
        verify_preset(tmp_path / "nowhere")
    assert is_preset("demo_en_de") and not is_preset("nowhere")
    for name in ("demo_en_fr", "base"):
        with pytest.raises(
            FileNotFoundError, match="There is no folder .* The package has demo_en_de"
        ):
            Translator.from_preset(name)
    with pytest.raises(ValueError, match="Did you mean 'demo_en_de'.* Trained: demo_en_de"):
        Transformer.from_preset("demo_en_d", 11)


@pytest.mark.backends("torch")
def test_what_no_preset_can_hold(tmp_path):
    translator = plain_translator()
    for name, value in (
        ("restrictions", Restrictions(min_length=3)),
        ("sampling", Sampling(top_k=5)),
        ("glossary", {"dog": "Hund"}),
    ):
        asking = dataclasses.replace(translator, **{name: value})
        with pytest.raises(ValueError, match=f"A preset has no {name}. Write a translator without"):
            asking.save_to_preset(tmp_path / "preset")
    for wrong, message in (
        ({"card": {"a": {1}}}, "`card` must hold only what JSON can"),
        ({"weights_dtype": "int4"}, "`weights_dtype` must be one of"),
        ({"sample": [3]}, "`sample`"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.save_to_preset(tmp_path / "preset", **wrong)
    kernel = translator.model.decoder_blocks[0].feed_forward.outer.kernel
    kernel.assign(numpy(kernel) * np.nan)
    with pytest.raises(ValueError, match="decoder.blocks.0.feed_forward.outer.kernel"):
        translator.save_to_preset(tmp_path / "preset")

    class Other(Transformer):
        def encode(self, encoder_token_ids):
            return super().encode(encoder_token_ids)

    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
    model = Other(translator.tokenizer.vocabulary_size, **sizes)
    with pytest.raises(SpecError, match="overrides `encode`"):
        Translator(model, translator.tokenizer).save_to_preset(tmp_path / "preset")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("torch")
def test_the_card(saved):
    card = json.loads((saved / "card.json").read_text("utf-8"))
    assert card["languages"] == ["de", "en"] and card["license"] == "cc0-1.0"
    assert card["model"]["num_layers"] == [2, 1] and card["model"]["dropout"] == 0.25
    assert card["search"] == {"beam_size": 3, "length_penalty": 0.6, "max_extra_length": 6}
    text = (saved / "README.md").read_text("utf-8")
    front = text.split("---")[1].splitlines()
    assert 'license: "cc0-1.0"' in front and 'language: ["de", "en"]' in front
    assert (
        "# small\n\nSmall & random.\n" in text and "* num_heads: 3" in text and "window" not in text
    )


@pytest.mark.backends("torch")
def test_the_command(saved, tmp_path, capsys):
    card = tmp_path / "card.json"
    card.write_text('{"origin": "a test"}')
    folder = tmp_path / "preset"
    given = ["--license", "mit", "--card", str(card), "--float16"]
    main(["preset", str(saved), str(folder), *given])
    assert str(folder / "README.md") in capsys.readouterr().out
    found = load(folder).card
    assert (found["license"], found["origin"]) == ("mit", "a test")
    main(["preset", "--verify", str(folder)])
    said = capsys.readouterr().out
    assert said.startswith("9 files unchanged; 3 sentences translated as before by ")
    (folder / "card.json").write_text("{}")
    for wrong in (
        ["preset", "--verify", str(folder)],
        ["preset", str(saved)],
        ["preset", str(saved), str(folder)],
        ["preset", "--verify", str(saved), str(folder)],
        ["preset", "--verify", str(saved), "--license", "mit", "--overwrite"],
        ["preset", str(saved), str(tmp_path / "new"), "--card", str(saved / "README.md")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code
        said = capsys.readouterr().err
        assert any(
            word in said for word in (str(tmp_path), str(saved), "FOLDER", "--license --over")
        )
