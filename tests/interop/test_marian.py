"""Marian's own `.npz` with `vocab.yml`: what CTranslate2's converter makes of it; hostile files."""

import dataclasses
import io

import numpy as np
import pytest

from keras_attention import Translator
from keras_attention.data.presets import load
from keras_attention.serving.models import paired
from tests.helpers import changed_copies
from tests.interop.conftest import SOURCES, TARGETS, assert_refused, number_of_refused, pieces_of
from tests.interop.test_marian_binary import PRE_NORM, YAML, arrays_of, marian_spec
from tests.interop.test_marian_binary import yaml as marian_yaml
from tests.spec_oracle import SpecOracle

pytestmark = pytest.mark.backends("torch")
yaml = pytest.importorskip("yaml")

SETTINGS = {
    **YAML,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-postprocess-emb": "d",
}
# Pieces that YAML quotes, escapes or gives a line.
ODD = [*"""\" ' it's : \x85 \\ ? # no - 12 \u2028 é""".split(" "), "a: 5", "\t", "x" * 200]


def archive(arrays, settings, save=np.savez):
    text = np.frombuffer(marian_yaml(settings).encode() + b"\0", "int8")
    file = io.BytesIO()
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save(file, **arrays, **{"special:model.yml": text})
    return file.getvalue()


@pytest.fixture
def write(spm, tmp_path):
    """Writes a folder as Tatoeba-MT packs it; returns the arrays."""

    def write(vocabularies=None, settings=SETTINGS, more=(), **options):
        sides = [pieces_of(model) for model in spm]
        vocabularies = vocabularies or {
            "opus.vocab.yml": [*dict.fromkeys([*sides[0], *sides[1], *more])]
        }
        size = max(map(len, vocabularies.values()))
        for name, pieces in vocabularies.items():
            pieces = [*pieces, *(f"more-{i}" for i in range(size - len(pieces)))]
            is_yaml = name.endswith(".yml")
            (tmp_path / name).write_text(yaml_of(pieces) if is_yaml else "\n".join([*pieces, ""]))
        arrays = arrays_of(marian_spec(size + 1, ssru=False, **options))
        if len(vocabularies) > 1:
            arrays["encoder_Wemb"], arrays["decoder_Wemb"] = (
                arrays["Wemb"][::-1],
                arrays.pop("Wemb"),
            )
        (tmp_path / "model.npz").write_bytes(archive(arrays, settings))
        (tmp_path / "model.npz.optimizer.npz").write_bytes(b"")
        for name, model in zip(("source.spm", "target.spm"), spm, strict=True):
            (tmp_path / name).write_bytes(model)
        return arrays

    return write


# As OPUS-MT-train's lib/dist.mk writes it for a release.
DECODER = """\
models:
  - model.npz
vocabs:
  - {0}
  - {1}
beam-size: 2
normalize: {2}
word-penalty: 0
mini-batch: 1
maxi-batch: 1
maxi-batch-sort: src
relative-paths: true
"""


def yaml_of(pieces, allow_unicode=True):
    ids = {piece: i for i, piece in enumerate(pieces)}
    return yaml.safe_dump(ids, sort_keys=False, allow_unicode=allow_unicode, width=10**6)


@pytest.mark.parametrize("has_decoder", [False, True])
@pytest.mark.parametrize("has_two", [False, True])
def test_the_same_as_by_its_own_converter(has_two, has_decoder, write, spm, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    names = ["opus.vocab.yml"]
    if has_two:  # Their order is not that of their names.
        names = ["b.vocab.yml", "a.vocab.yml"]
        sides = dict(zip(names, map(pieces_of, spm), strict=True))
        settings = {**SETTINGS, **PRE_NORM, "enc-depth": 1, "dec-depth": 3}
        write(sides, settings, normalize_first=True, activation="silu", depth=(1, 3))
    else:
        write()
    files = [str(tmp_path / name) for name in names]
    converter = ctranslate2.converters.MarianConverter(str(tmp_path / "model.npz"), files)
    if has_decoder:
        (tmp_path / "old.npz").write_bytes(b"")  # Another model is not the one that is named.
        (tmp_path / "decoder.yml").write_text(DECODER.format(names[0], names[-1], 0))
        converter = ctranslate2.converters.OpusMTConverter(str(tmp_path))
    converter.convert(str(tmp_path / "theirs"))
    theirs = ctranslate2.Translator(str(tmp_path / "theirs"), compute_type="float32")
    found = load(tmp_path, "as_transformers")
    # They give the unknown token a probability in scores.
    oracle = SpecOracle(
        dataclasses.replace(found.spec, suppressed_token_ids=(found.spec.pad_token_id,))
    )
    translator = Translator.from_preset(found, engine="numpy", beam_size=1, max_extra_length=9)
    own, options = found.tokenizer, {"beam_size": 1, "disable_unk": True, "min_decoding_length": 0}
    for source, target in zip(SOURCES, TARGETS, strict=True):
        tokens = own.tokens(source, "source"), own.tokens(target, "target")
        ids = [*own.encode(source), 0], [*own.encode(target, side="target"), 0]
        (score,) = theirs.score_batch(*([each] for each in tokens))
        scores = oracle.log_probabilities(*ids)
        np.testing.assert_allclose(scores, score.log_probs, atol=1e-4, rtol=1e-4)
        longest = len(ids[0]) + 9
        (best,) = theirs.translate_batch([tokens[0]], max_decoding_length=longest, **options)
        ((ours,),) = translator.translate([source])
        assert [own.id_to_token(i) for i in ours.token_ids if i] == best.hypotheses[0]


def test_settings_of_a_release(write, spm, tmp_path):
    """The search of decoder.yml, the languages of the release, and the tags of those it translates into."""
    write(more=[">>fra<<", ">>deu<<"])
    release = (
        "release: eng-deu/opus.zip\nsource-languages:\n   - eng\ntarget-languages:\n   - deu\n"
    )
    (tmp_path / "model.yml").write_text(release)
    names = ["opus.vocab.yml"] * 2
    (tmp_path / "decoder.yml").write_text(DECODER.format(*names, 0))
    translator = Translator.from_preset(tmp_path, engine="numpy", max_extra_length=9)
    assert (translator.beam_size, translator.length_penalty) == (2, 0)
    assert translator.card["languages"] == ["eng", "deu"]
    (tmp_path / "model.yml").write_text(f"{release}   - fra\n")
    (tmp_path / "decoder.yml").write_text(DECODER.format(*names, 0.5))
    with pytest.warns(UserWarning, match=r"normalize in .*decoder.yml'` is 0.5: Marian"):
        found = load(tmp_path)
    assert found.options == {"beam_size": 2, "length_penalty": 0.5} and not found.card
    tokenizer = found.tokenizer
    assert tokenizer.tags == {"fra": ">>fra<<", "deu": ">>deu<<"} and not tokenizer.languages
    tagged = tokenizer.encode(f">>fra<< {SOURCES[0]}")
    assert tagged[1:] == tokenizer.encode(SOURCES[0])
    assert tokenizer.in_languages(target="fra").encode(SOURCES[0]) == tagged
    expected = translator([f">>{code}<< {SOURCES[0]}" for code in ("fra", "deu")])
    assert [translator(SOURCES[0], target_language=code) for code in ("fra", "deu")] == expected
    [served] = paired(["it"], [translator], [("en", "fra")])
    assert served.translator(SOURCES[0]) == expected[0] != expected[1]
    with pytest.raises(ValueError, match=r"--languages en de \(it translates into fra, deu\)"):
        paired(["it"], [dataclasses.replace(translator, card={})], None)
    kept = Translator.from_preset(found, target_language="fra").save_to_preset(tmp_path / "kept")
    assert load(kept).tokenizer.encode(SOURCES[0]) == tagged
    with pytest.raises(ValueError, match="Did you mean 'fra'.*target_language='frau'"):
        translator(SOURCES[0], target_language="frau")
    with pytest.raises(ValueError, match="no codes of languages.*source_language='eng'"):
        translator(SOURCES[0], source_language="eng")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("model.npz", "../model.npz", "'models' must be files beside it.*Received: .*/model.npz"),
        (
            "opus.vocab.yml",
            "/etc/passwd",
            "'vocabs' must be files beside it. Received: /etc/passwd",
        ),
        ("model.npz", "none.npz", "'models' must be files beside it"),
        (
            "  - model.npz",
            "  - model.npz\n  - best.npz",
            "one model.npz.*as decoder.yml names them",
        ),
        ("models:", "model:", "must hold one model.npz"),
        ("models:", "models: x", "'models' must be of type list"),
        ("word-penalty: 0", "word-penalty: 0.1", "word-penalty=0.1 cannot be represented"),
        ("mini-batch: 1", "allow-unk: true", "allow-unk=True cannot be represented"),
        ("beam-size: 2", "beam-size: 0", "'beam-size' must be at least 1"),
        ("normalize: 0", "normalize: much", "`normalize in .*` must be a"),
    ],
)
def test_wrong_settings_of_a_release(old, new, message, write, tmp_path):
    write()
    (tmp_path / "best.npz").write_bytes(b"")
    content = DECODER.format(*["opus.vocab.yml"] * 2, 0)
    assert old in content
    (tmp_path / "decoder.yml").write_text(content.replace(old, new))
    assert_refused(tmp_path, message)


def test_a_packed_release(tmp_path):
    path = tmp_path / "opus.zip"
    path.write_bytes(b"PK")
    assert_refused(path, r"Unpack it \(`python -m zipfile -e opus.zip FOLDER`\)")


@pytest.mark.parametrize("name", ["{}.vocab.yml", "opus.{}.vocab"])
def test_special_tokens_are_where_the_vocabulary_has_them(name, write, spm, tmp_path):
    """As in vocabularies of sorted pieces, and in lists: the same translations as with the usual ids."""
    order = [3, 1, 4, 0, 2]  # The end and the unknown token are the first two in the others.
    usual = [pieces_of(model) for model in spm]
    names = [name.format(side) for side in ("src", "trg")]
    found = []
    for sides in (usual, [[side[i] for i in order] + side[5:] for side in usual]):
        write(dict(zip(names, sides, strict=True)))
        if found:
            place = tmp_path / "model.npz"
            with np.load(place) as file:
                arrays = dict(file)
            for table in ("encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_b"):
                axis = arrays[table].ndim - 1 if table.endswith("_b") else 0
                moved = np.take(arrays[table], [*order, *range(5, arrays[table].shape[axis])], axis)
                arrays[table] = moved
            np.savez(place, **arrays)
        (tmp_path / "decoder.yml").write_text(DECODER.format(*names, 0))
        translator = Translator.from_preset(tmp_path, engine="numpy", max_extra_length=9)
        spec = translator.model
        assert spec.suppressed_token_ids == (1, spec.pad_token_id)
        found.append((spec.end_token_id, translator(SOURCES)))
    assert [end for end, _ in found] == [0, 3] and found[0][1] == found[1][1]
    (tmp_path / names[1]).write_text((tmp_path / names[0]).read_text().replace("</s>", "<s>", 1))
    assert_refused(tmp_path, "lacks the token|do not fit")


def test_positions_and_tokens(write, spm, tmp_path):
    arrays = write(more=ODD)
    found = load(tmp_path)
    assert found.spec.encoder.positions.layout == "halves"
    assert load(tmp_path, "as_transformers").spec.encoder.positions.layout == "interleaved"
    np.testing.assert_array_equal(found.spec.embedding.embeddings[:-1], arrays["Wemb"])
    tokenizer = found.tokenizer
    assert tokenizer.decode(tokenizer.encode(SOURCES[0]), side="source") == SOURCES[0]
    breaks = {"\x85", "\u2028"}  # PyYAML writes them in lines of their own, unless it escapes all.
    pieces = [*dict.fromkeys([*pieces_of(spm[0]), *pieces_of(spm[1]), *ODD])]
    for allow_unicode in (False, True):
        pieces = [piece for piece in pieces if not (allow_unicode and piece in breaks)]
        (tmp_path / "opus.vocab.yml").write_text(yaml_of(pieces, allow_unicode))
        tokenizer = load(tmp_path).tokenizer
        assert [tokenizer.id_to_token(i) for i in range(len(pieces))] == pieces


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("opus.vocab.yml", b"</s>: 0\n- <unk>\n", "opus.vocab.yml' is damaged: '- <unk>' is no"),
        ("opus.vocab.yml", b"</s>: 0\n</s>: 1\n", "'</s>: 1' is no further piece"),
        ("opus.vocab.yml", b"</s>: 0\n<unk>: 100\n", "must hold ids from 0 to"),
        ("opus.vocab.yml", b"\xff: 0\n", "no UTF-8"),
        ("opus.vocab.yml", b"</s>: 0\n<unk>: 1\n", "source.spm and target.spm do not fit"),
        ("source.spm", None, "lacks source.spm"),
        ("best.npz", b"", "must hold one model.npz.*best.npz, model.npz, opus.vocab.yml"),
        ("model.npz", b"", "empty"),
        ("model.npz", b"PK", "model.npz' is damaged: it is no archive"),
    ],
)
def test_wrong_files(name, content, message, write, tmp_path):
    write()
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path, message)


def test_hostile_archives(write, tmp_path):
    arrays = write()
    path = tmp_path / "model.npz"
    for content, message in (
        (
            archive({**arrays, "x": np.zeros(9999)}, SETTINGS, np.savez_compressed),
            "entries are larger than the file",
        ),
        (archive({**arrays, "x": np.array([{}])}, SETTINGS), "'x.npy'.*of object"),
        (archive({**arrays, "x": np.ones(3)[:0]}, SETTINGS), "has 0 bytes"),
        (archive({**arrays, "x": np.ones(3, "f")}, SETTINGS), r"further arrays, such as \['x'\]"),
        (archive(arrays, {**SETTINGS, "transformer-ffn-activation": "gelu"}), "'gelu'; read are"),
    ):
        path.write_bytes(content)
        assert_refused(tmp_path, message)
    path.write_bytes(content := archive(arrays, SETTINGS))
    assert number_of_refused(path, changed_copies(content, 20, front=200)) > 10
