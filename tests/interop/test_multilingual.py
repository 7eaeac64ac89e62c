"""M2M-100, NLLB-200 and mBART of transformers and CTranslate2: the same logits, ids and translations."""

import copy
import dataclasses
import json
import shutil
import unicodedata

import numpy as np
import pytest

from keras_attention import Tokenizer, Transformer, Translator, check_export
from keras_attention.cli import attention
from keras_attention.cli.main import main as command
from keras_attention.data.alignments import word_positions
from keras_attention.data.presets import load
from keras_attention.utils.sides import encode_ended
from keras_attention.visualization import attention_entries
from tests.helpers import pieces_of, sentence_piece_model
from tests.interop.conftest import assert_refused, replace
from tests.recipes.small_runs import write_files
from tests.spec_oracle import SpecOracle

pytestmark = pytest.mark.backends("torch")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install transformers"
)
# Ten scripts, and letters in several forms.
TEXTS = [
    "The old house is red, and the red house is old.",
    "Ein Hund sieht die süße Katze im Café.",
    "Старый дом красный, а кот спит.",
    "古い家は赤い。猫が寝ている。",
    "البيت القديم أحمر، والقطة نائمة.",
    "Το παλιό σπίτι είναι κόκκινο.",
    "पुराना घर लाल है और बिल्ली सो रही है।",
    "오래된 집은 빨갛고 고양이는 잔다.",
    "הבית הישן אדום והחתול ישן.",
    "บ้านเก่าสีแดงและแมวนอนหลับ",
    "ძველი სახლი წითელია.",
]
OF_NLLB, OF_MBART = ("eng_Latn", "deu_Latn", "arb_Arab"), ("en_XX", "de_DE", "ar_AR")
CODES = {"m2m": ("en", "de", "ast"), "nllb": OF_NLLB, "legacy": OF_NLLB}
# The first release of mBART: translations into one language.
CODES |= {"mbart50": OF_MBART, "mbart": ("en_XX", "de_DE", "de_DE")}
KINDS = [*CODES]
CONFIG, WHOLE = "tokenizer_config.json", "tokenizer.json"
EXTRA = 4  # tokens that a translation may have more than its source


def lines(number):
    """Texts of the letters in `TEXTS`, of words that are there, and of what no vocabulary has."""
    random = np.random.default_rng(11)
    letters = sorted(set("".join(TEXTS)))
    words = " ".join(TEXTS).split()
    found = [
        *TEXTS,
        *("", "  two   spaces ", "ﬁne ½ ①", "☃ snow ☃☃", "e\u0301 \u00ad soft", "ＡＢ １２"),
    ]
    for row in range(number):
        pool, size = (words, 9) if row % 2 else (letters, 30)
        found.append((" " * (row % 2)).join(random.choice(pool, random.integers(1, size))))
    return found


def sentence_pieces(model_type="bpe"):
    return sentence_piece_model(TEXTS * 5, 460, model_type=model_type, character_coverage=0.99)


def in_pair(kind):
    """Options of a call and words of a command: the first two languages of a model."""
    options = dict(zip(("source_language", "target_language"), CODES[kind], strict=False))
    return options, [f"--{name.replace('_', '-')}={code}" for name, code in options.items()]


def run(*words):
    command(list(map(str, words)))


def write_texts(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def write_model(folder, kind, **changes):
    """A random model of transformers with its tokenizer, as its authors' folders are; returns both."""
    folder.mkdir()
    is_mbart = kind.startswith("mbart")
    model = sentence_pieces("unigram" if is_mbart else "bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)[3:]]
    if is_mbart:
        codes = None
        name = "MBart50Tokenizer" if kind == "mbart50" else "MBartTokenizer"
        settings = {"tokenizer_class": name, "bos_token": "<s>"}
    elif kind == "m2m":
        from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as KNOWN

        codes = [f"__{code}__" for code in KNOWN["m2m100"]]
        settings = {"tokenizer_class": "M2M100Tokenizer"}
        (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    else:
        from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as KNOWN

        codes = KNOWN
        settings = {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": kind == "legacy"}
    if codes is not None:
        settings["additional_special_tokens"] = codes
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = getattr(transformers, settings["tokenizer_class"]).from_pretrained(folder)
    if kind in ("nllb", "legacy"):
        tokenizer.save_pretrained(folder)
    options = {
        "vocab_size": len(tokenizer) + (0 if is_mbart else 8),
        "d_model": 20,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 28,
        "decoder_ffn_dim": 28,
        "max_position_embeddings": 90,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "dropout": 0.3,
    }
    torch.manual_seed(5)
    if is_mbart:
        start = tokenizer.convert_tokens_to_ids("</s>" if kind == "mbart50" else "de_DE")
        options |= {"decoder_start_token_id": start, "scale_embedding": True}
        # Published ones have these two as well, which CTranslate2's converter asks for.
        options |= {"normalize_before": True, "tokenizer_class": settings["tokenizer_class"]}
        options["activation_function"] = "relu"
        config = transformers.MBartConfig(**{**options, **changes})
        network = transformers.MBartForConditionalGeneration(config).eval()
        network.final_logits_bias += torch.randn(config.vocab_size)
        # The last token may be any, as in ours.
        network.generation_config.forced_eos_token_id = None
    else:
        config = transformers.M2M100Config(**{**options, **changes})
        network = transformers.M2M100ForConditionalGeneration(config).eval()
    random = np.random.default_rng(7)
    with torch.no_grad():
        for weight in network.parameters():
            noise = random.normal(0.0, 0.3, weight.shape).astype("float32")
            weight += torch.from_numpy(noise)
        network.model.shared.weight[config.pad_token_id] = 0.0
    network.save_pretrained(folder)
    return network, tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder, the model and the tokenizer of each kind."""
    place, found = tmp_path_factory.mktemp("multilingual"), {}
    for kind in KINDS:
        found[kind] = (place / kind, *write_model(place / kind, kind))
    return found


LOGITS = [
    ("m2m", {}),
    ("m2m", {"scale_embedding": False}),
    ("m2m", {"d_model": 12}),
    ("mbart50", {}),
    ("mbart", {"scale_embedding": False, "activation_function": "gelu"}),
]


@pytest.mark.parametrize(("kind", "changes"), LOGITS)
def test_logits(kind, changes, tmp_path):
    model, tokenizer = write_model(tmp_path / "model", kind, **changes)
    preset = load(tmp_path / "model")
    source, target = [185, 9, 2, 30, 17, 5, 2], [2, 187, 12, 3, 3, 31]
    with torch.no_grad():
        found = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]))
    expected = found.logits[0].numpy()
    assert np.std(expected) > 0.5
    logits = SpecOracle(preset.spec).logits(source, target)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    start = 2 if kind != "mbart" else tokenizer.convert_tokens_to_ids("de_DE")
    assert (preset.spec.start_token_id, preset.spec.end_token_id) == (start, 2)
    assert preset.spec.max_length == 90 and preset.model_options["dropout"] == 0.3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_model", [True, False])
def test_ids_and_texts(kind, has_model, made, tmp_path):
    """NLLB's and mBART's without the SentencePiece model, too, as transformers saves it now."""
    if kind == "m2m" and not has_model:
        pytest.skip("M2M-100 always has its SentencePiece model.")
    folder, _, theirs = made[kind]
    if not has_model:
        folder = shutil.copytree(folder, tmp_path / "model")
        (folder / "sentencepiece.bpe.model").unlink()
        theirs.save_pretrained(folder)
    tokenizer = load(folder).tokenizer
    texts = lines(1000)
    if kind == "mbart":  # transformers 5 leaves out the normalisation of the SentencePiece model.
        texts = [unicodedata.normalize("NFKC", text).replace("\u00ad", "") for text in texts]
    source, target, _ = CODES[kind]
    ours = tokenizer.in_languages(source, target)
    theirs.src_lang, theirs.tgt_lang = source, target
    # transformers 5 makes a token of a space at the end, which neither SentencePiece nor the training did.
    expected = theirs([text.rstrip() for text in texts])["input_ids"]
    end = [] if kind in ("legacy", "mbart") else [2]
    rows = ours.encode(texts)
    assert all(
        [*row, *end] == full for row, full, text in zip(rows, expected, texts, strict=True) if row
    )
    assert [not row for row in rows] == [not text.strip() for text in texts]
    assert sum(map(len, rows)) > 5000 and any(ours.unknown_token_id in row for row in rows)
    code = theirs.convert_tokens_to_ids("__de__" if kind == "m2m" else target)
    inner = [[i for i in row if i not in (2, 3, rows[0][0], rows[0][-1])] for row in rows]
    starts_with_code = tokenizer.start_token_id == code
    assert starts_with_code == (kind == "mbart")
    assert (ours.encode(TEXTS, side="target")[0][0] == code) != starts_with_code
    shown = [ours.decode([code, *row, 2]) for row in inner]
    assert shown == [t.strip() for t in theirs.batch_decode(inner, skip_special_tokens=True)]


def generated(network, tokenizer, kind, beams, source, target):
    """Ids that transformers generates for `TEXTS`, one at a time, from the code to the end."""
    tokenizer.src_lang = source
    code = tokenizer.convert_tokens_to_ids(f"__{target}__" if kind == "m2m" else target)
    forced = {} if kind == "mbart" else {"forced_bos_token_id": code}
    rows = []
    for text in TEXTS:
        inputs = tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            [row] = network.generate(
                **inputs,
                **forced,
                num_beams=beams,
                length_penalty=0.0,
                early_stopping="never",
                max_new_tokens=inputs["input_ids"].shape[1] + EXTRA,
            ).tolist()
        assert row[:2] == [2, code] if forced else row[0] == code
        rows.append(tuple(row[1 : row.index(2, 1)] if 2 in row[1:] else row[1:]))
    return rows


def made_translator(folder, engine, beams, **options):
    options |= {"beam_size": beams, "length_penalty": 0.0, "max_extra_length": EXTRA}
    if engine != "plain":
        return Translator.from_preset(folder, engine=engine, **options)
    model = Transformer.from_preset(folder)
    return Translator(model, Tokenizer.from_preset(folder), engine=engine, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_translations(kind, made):
    folder, network, theirs = made[kind]
    source, target, other = CODES[kind]
    options = {"source_language": source, "target_language": other}
    for beams in (1, 3):
        expected = generated(network, theirs, kind, beams, source, target)
        assert len({*expected}) > 4 and sum(map(len, expected)) > 4 * len(expected)
        for engine in ("torch", "numba", *["plain"] * (beams == 1 or kind == "nllb")):
            translator = made_translator(folder, engine, beams, **options)
            found = translator.translate(TEXTS, target_language=target)
            assert [best.token_ids for [best] in found] == expected, engine


def test_what_is_asked_of_a_translation(made):
    """A prefix stands behind the code; banned words and empty texts know nothing of it."""
    folder, *_ = made["nllb"]
    target = CODES["nllb"][1]
    translator = made_translator(folder, "torch", 2, **in_pair("nllb")[0])
    code, prefix = translator.tokenizer.languages[target], TEXTS[1][:10]
    begin = translator.tokenizer.encode(prefix, side="target")
    assert begin[0] == code and len(begin) > 2
    [best], [other], [empty] = translator.translate(TEXTS[:2] + [" "], prefixes=[prefix, "", ""])
    assert best.token_ids[: len(begin)] == tuple(begin) and best.text.startswith(prefix)
    assert other.token_ids[0] == code and target not in other.text
    assert (empty.text, empty.token_ids) == ("", ())
    banned = dataclasses.replace(translator, restrictions={"banned": ["Hund"]}).restrictions
    rules = banned.token_rules(translator.tokenizer)
    assert len(rules.banned) and code not in rules.banned


def test_loops_are_broken_in_the_languages_of_the_call(made):
    folder, *_ = made["nllb"]
    translator = made_translator(folder, "torch", 1, break_loops=True)
    found = translator.translate(TEXTS, **in_pair("nllb")[0])
    assert any(best.had_loop for [best] in found)
    code = translator.tokenizer.languages[CODES["nllb"][1]]
    assert {best.token_ids[0] for [best] in found} == {code}


def test_chosen_languages_are_kept(made, tmp_path):
    folder, *_ = made["m2m"]
    translator = made_translator(folder, "torch", 2, **in_pair("m2m")[0])
    kept = Translator.from_preset(
        translator.save_to_preset(tmp_path / "kept", sample=TEXTS[:2]), max_extra_length=EXTRA
    )
    assert kept(TEXTS[:3]) == translator(TEXTS[:3])
    assert kept.tokenizer.target_language == "de"
    other = kept.tokenizer.in_languages(target="ast")
    assert other.fingerprint() != kept.tokenizer.fingerprint() == translator.tokenizer.fingerprint()
    assert copy.deepcopy(other).target_language == "ast"
    assert kept(TEXTS[:3], target_language="ast") != kept(TEXTS[:3])
    with pytest.raises(ValueError, match="cannot be exported"):
        translator.export(tmp_path / "marian", "hugging_face")


def test_languages_must_be_known(made):
    folder, *_ = made["nllb"]
    with pytest.raises(ValueError, match=r"give `source_language`. It knows ace_Arab, .*\.\.\. "):
        Translator.from_preset(folder, target_language="deu_Latn")("a house")
    with pytest.raises(ValueError, match="give `target_language`"):
        Translator.from_preset(folder)("a house", source_language="deu_Latn")
    with pytest.raises(ValueError, match="Did you mean 'deu_Latn'.*target_language='deu_Ltn'"):
        Translator.from_preset(folder, target_language="deu_Ltn")
    with pytest.raises(ValueError, match="It knows deu_Latn, ace_Arab, .* target_language='deu'"):
        Translator.from_preset(folder, target_language="deu")
    with pytest.raises(ValueError, match="`source_language` must be a language of the model"):
        load(folder).tokenizer.in_languages(source=3)
    with pytest.raises(ValueError, match="this one has no codes of languages. Leave it out"):
        Translator.from_preset("demo_en_de", source_language="en")
    with pytest.raises(ValueError, match="this one has no codes of languages. Leave it out"):
        Translator.from_preset("demo_en_de")("a house", target_language="de")


@pytest.mark.parametrize(
    "kind, name, change, message",
    [
        ("m2m", "sentencepiece.bpe.model", None, "lacks sentencepiece.bpe.model"),
        ("m2m", CONFIG, "{}", "no codes of languages"),
        ("m2m", CONFIG, '{"tokenizer_class": "SMALL100Tokenizer"}', "'SMALL100Tokenizer'"),
        ("m2m", CONFIG, '{"added_tokens_decoder": {"x": "__en__"}}', "must hold ids"),
        ("m2m", CONFIG, '{"added_tokens_decoder": 3}', "must be of type dict"),
        ("m2m", "vocab.json", '{"<unk>": 3, "__en__": 4}', "one id for two pieces"),
        ("m2m", "config.json", '{"model_type": "nllb-moe"}', "'nllb-moe'"),
        ("m2m", "config.json", '{"model_type": "bart"}', "'bart'"),
        ("nllb", WHOLE, lambda it: it["model"]["merges"].reverse(), "not made of a SentencePiece"),
        ("nllb", WHOLE, lambda it: it.pop("normalizer"), "'normalizer' must be"),
        ("nllb", WHOLE, lambda it: it["model"]["merges"].append([3]), "or no tokenizer of NLLB"),
        ("nllb", WHOLE, lambda it: it["added_tokens"].append(3), "must hold ids"),
        ("mbart", WHOLE, lambda it: it["model"]["vocab"].append([3]), "with scores"),
        ("mbart", "config.json", lambda it: it.pop("decoder_start_token_id"), "Received: 2"),
        (
            *("mbart", "config.json", lambda it: it.update(decoder_start_token_id=2)),
            "mBART-25, whose translations begin with the code.*Received: 2",
        ),
    ],
)
def test_damaged_folders(kind, name, change, message, made, tmp_path):
    folder = shutil.copytree(made[kind][0], tmp_path / "model")
    if kind == "mbart":
        made[kind][2].save_pretrained(folder)
        (folder / "generation_config.json").unlink()
    if kind != "m2m":
        (folder / "sentencepiece.bpe.model").unlink()
    if callable(change):
        content = json.loads((folder / name).read_text())
        change(content)
        change = json.dumps(content)
    replace(folder / name, change)
    assert_refused(folder, message)


def test_the_first_mbart_translates_into_one_language(made):
    translator = made_translator(made["mbart"][0], "torch", 1, source_language="en_XX")
    assert translator.tokenizer.target_language == "de_DE"
    assert translator(TEXTS[:2]) == translator(TEXTS[:2], target_language="de_DE")
    with pytest.raises(ValueError, match=r"It knows de_DE\. Received: target_language='fr_XX'"):
        translator(TEXTS[0], target_language="fr_XX")
    pytest.importorskip("starlette", reason="an extra: serve")
    from keras_attention.serving.models import Directions, paired

    directions = Directions(paired(["mbart"], [translator], None))
    targets = {one["code"]: one["targets"] for one in directions.languages()}
    assert len(targets) == 25 and {*map(tuple, targets.values())} == {("de_DE",), ()}
    assert directions.find("cs_cz", "de_de").source == "cs_CZ"
    with pytest.raises(LookupError, match="There is no model from 'de_de' to 'cs_cz'"):
        directions.find("de_de", "cs_cz")


def test_ids_of_the_authors_own_folder(made, tmp_path):
    """Without a `tokenizer.json`: the pieces count from 4, and the languages behind them in their order."""
    folder = shutil.copytree(made["nllb"][0], tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    codes = {"additional_special_tokens": ["eng_Latn", "zul_Latn", "deu_Latn"]}
    (folder / "special_tokens_map.json").write_text(json.dumps(codes))
    (folder / "tokenizer_config.json").unlink()
    tokenizer = load(folder).tokenizer
    size = len(pieces_of(sentence_pieces()))
    assert tokenizer.languages == {"eng_Latn": size + 1, "zul_Latn": size + 2, "deu_Latn": size + 3}
    whole = load(made["nllb"][0]).tokenizer.in_languages("eng_Latn")
    assert tokenizer.in_languages("eng_Latn").encode(TEXTS[0])[1:] == whole.encode(TEXTS[0])[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_ctranslate2(kind, made, tmp_path):
    """What its converter makes of the folder: the same tokens, and its greedy translations."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, _, theirs = made[kind]
    source, target, _ = CODES[kind]
    converter = ctranslate2.converters.TransformersConverter(
        str(folder), copy_files=["sentencepiece.bpe.model", "tokenizer_config.json"]
    )
    made_folder = converter.convert(str(tmp_path / "converted"))
    if kind == "mbart":
        assert_refused(made_folder, "decoder_start_token is null")
        config = tmp_path / "converted" / "config.json"
        said = {**json.loads(config.read_text()), "decoder_start_token": target}
        config.write_text(json.dumps(said))
    translator = made_translator(made_folder, "torch", 1, **in_pair(kind)[0])
    tokenizer = translator.tokenizer
    theirs.src_lang = source
    tokens = [theirs.convert_ids_to_tokens(theirs(text)["input_ids"]) for text in TEXTS]
    end = [] if kind in ("legacy", "mbart") else ["</s>"]
    assert [[*tokenizer.tokens(text), *end] for text in TEXTS] == tokens
    code = f"__{target}__" if kind == "m2m" else target
    begin = None if kind == "mbart" else [[code]]
    their, options = ctranslate2.Translator(made_folder), {"beam_size": 1, "return_end_token": True}
    for text, row in zip(TEXTS, tokens, strict=True):
        [found] = their.translate_batch(
            [row], begin, max_decoding_length=len(row) + EXTRA, **options
        )
        [best] = translator.translate(text)
        ours = [tokenizer.id_to_token(i) for i in best.token_ids]
        expected = found.hypotheses[0]
        assert ours == expected[: len(ours)] and len(ours) >= len(expected) - 1
    exported = translator.export(tmp_path / "exported", "ctranslate2")
    assert check_export(translator, exported, TEXTS).passed


def test_command(made, tmp_path):
    folder, *_ = made["nllb"]
    options, named = in_pair("nllb")
    lines = write_texts(tmp_path / "lines.txt", TEXTS[:3])
    files = ["--input", lines, "--output", tmp_path / "found.txt"]
    run("translate", folder, *named, "--beam-size", 2, *files)
    translator = Translator.from_preset(folder, beam_size=2, **options)
    assert (tmp_path / "found.txt").read_text().splitlines() == translator(TEXTS[:3])


def test_a_server_translates_between_all_languages(made):
    pytest.importorskip("starlette", reason="an extra: serve")
    pytest.importorskip("uvicorn", reason="an extra: serve")
    from keras_attention.serving.app import Service
    from keras_attention.serving.fields import Limits
    from keras_attention.serving.models import paired
    from tests.serving.served import ask, running

    folder, *_ = made["nllb"]
    translator = made_translator(folder, "torch", 2)
    source, target, other = CODES["nllb"]
    demo = Translator.from_preset("demo_en_de")
    models = paired(["all", "demo"], [translator, demo], None)
    assert [str(model) for model in models] == ["between 202 languages", "en to de"]
    with running(Service(models, Limits(), lambda: None)) as port:
        listed = {one["code"]: one["targets"] for one in ask(port, "/languages")[2]}
        assert len(listed) == 204 and listed["en"] == ["de"] and len(listed[source]) == 201
        assert ask(port, "/frontend/settings")[0] == 200
        texts = TEXTS[:2]
        for codes in ((source, target), (other, target), (source.lower(), other.upper())):
            answer = ask(port, body={"q": texts, "source": codes[0], "target": codes[1]})[2]
            named = [
                next(code for code in (source, target, other) if code.lower() == one.lower())
                for one in codes
            ]
            expected = translator(texts, source_language=named[0], target_language=named[1])
            assert answer["translatedText"] == expected
        html = {"q": "<b>red</b>", "source": source, "target": target, "format": "html"}
        assert ask(port, body=html)[0] == 200
        for codes, said in (
            ((source, "deu_Ltn"), "Did you mean 'deu_latn'? It translates between 202 languages"),
            (("auto", target), "This server detects no language: name the source"),
            (("en", target), f"There is no model from 'en' to '{target.lower()}'"),
            ((source, source), "There is no model from"),
        ):
            status, _, found = ask(port, body={"q": "a", "source": codes[0], "target": codes[1]})
            assert status == 400 and said in found["error"]
    [pair] = paired(["one"], [translator], [(source.lower(), target.lower())])
    expected = translator(texts, source_language=source, target_language=target)
    assert str(pair) == "eng_latn to deu_latn" and pair.translator(texts) == expected
    with pytest.raises(ValueError, match="must be a language of the model"):
        paired(["one"], [translator], [("en", "de")])


def test_other_commands(made, tmp_path, refused_by):
    """What they write knows the languages; what they score was translated in them."""
    folder, *_ = made["m2m"]
    options, named = in_pair("m2m")
    expected = made_translator(folder, "torch", 4, **options)(TEXTS[:3])
    run("preset", folder, tmp_path / "preset", *named)
    run("export", folder, tmp_path / "ct2", "--format", "ctranslate2", *named)
    for name in ("preset", "ct2"):
        assert made_translator(tmp_path / name, "torch", 4)(TEXTS[:3]) == expected
    source = write_texts(tmp_path / "a.src", TEXTS[:3])
    target = write_texts(tmp_path / "a.trg", Translator.from_preset(folder, **options)(TEXTS[:3]))
    files = ["--source-file", source, "--reference-file", target]
    report = tmp_path / "report.json"
    run("evaluate", folder, *files, *named, "--output", report)
    scores = json.loads(report.read_text())["systems"]["m2m"]["scores"]
    assert scores["chrf"]["score"] == pytest.approx(100)
    for wrong in (["preset", folder, "new"], ["evaluate", folder, *files]):
        assert "Did you mean 'de'" in refused_by(run, *wrong, named[0], "--target-language=dee")


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities(kind, made, tmp_path, capsys, refused_by):
    """`score`, alone and in chunks, against transformers' logits; and translations of files in chunks."""
    folder, network, theirs = made[kind]
    source, target, _ = CODES[kind]
    theirs.src_lang, theirs.tgt_lang = source, target
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[5])]
    code = theirs.convert_tokens_to_ids(f"__{target}__" if kind == "m2m" else target)
    expected = []
    for text, translation in pairs:
        inner = theirs(translation, add_special_tokens=False)["input_ids"]
        inner = [i for i in inner if i not in (2, *theirs.all_special_ids[4:])]
        start, ids = (code, [*inner, 2]) if kind == "mbart" else (2, [code, *inner, 2])
        with torch.no_grad():
            shifted = torch.tensor([[start, *ids[:-1]]])
            found = network(**theirs([text], return_tensors="pt"), decoder_input_ids=shifted)
        scores = found.logits[0].log_softmax(-1)
        expected.append(float(sum(scores[t, token] for t, token in enumerate(ids))))
    source_file, target_file = (
        write_texts(tmp_path / name, texts)
        for name, texts in zip(("a.src", "a.trg"), zip(*pairs, strict=True), strict=True)
    )
    options, named = in_pair(kind)
    words = ["score", folder, "--source-file", source_file, "--target-file", target_file, *named]
    run(*words)
    assert [*map(float, capsys.readouterr().out.split())] == pytest.approx(expected, abs=1e-3)
    if kind != "nllb":
        return
    run(*words, "--output-dir", tmp_path / "scores")
    found = (tmp_path / "scores" / "a.trg").read_text().split()
    assert [*map(float, found)] == pytest.approx(expected, abs=1e-3)
    words = ["--input", source_file, "--output-dir", tmp_path / "texts", *named, "--break-loops"]
    run("translate", folder, *words)
    translator = Translator.from_preset(folder, break_loops=True, **options)
    found = (tmp_path / "texts" / "a.src").read_text().splitlines()
    assert found == translator([text for text, _ in pairs])
    for words in (["score", folder], ["attention", folder, TEXTS[0]]):
        wrong = [*words, named[0], f"--target-language={target}x"]
        assert f"Did you mean '{target}'" in refused_by(run, *wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_is_no_word(kind, made, tmp_path):
    """Words are numbered as in the text, wherever the tokenizer puts the code."""
    folder, *_ = made[kind]
    source, target, _ = CODES[kind]
    if kind == "nllb":
        page = tmp_path / "page.html"
        run("attention", folder, TEXTS[0], TEXTS[1], *in_pair(kind)[1], "--output", page)
        assert TEXTS[0] in page.read_text("utf-8")
    translator = made_translator(folder, "torch", 1).in_languages(source, target)
    tokenizer = translator.tokenizer
    links = [(2, 1), (11, 7)]
    [entry] = attention_entries(
        translator.watched, tokenizer, [(TEXTS[0], TEXTS[1])], alignments=[links]
    )
    assert entry.header["alignment"] == [[2, 1], [11, 7]]
    for side, text in (("source", TEXTS[0]), ("target", TEXTS[1])):
        ids = encode_ended(tokenizer, [text], side)[0]
        words = word_positions(tokenizer, ids, side, True)
        pieces = [[tokenizer.id_to_token(ids[i], side) for i in word] for word in words]
        assert ["".join(word).replace("▁", "") for word in pieces] == text.split()
        shown = entry.header["tokens"]["source" if side == "source" else "decoder_output"]
        special = {tokenizer.languages[source], tokenizer.languages[target], 2}
        assert [one["special"] for one in shown] == [token in special for token in ids]


def test_the_page_to_try_a_model_opens_in_the_given_languages(made, monkeypatch):
    pytest.importorskip("starlette", reason="an extra: serve")
    seen = {}
    monkeypatch.setattr(
        attention,
        "run_server",
        lambda program, options, make, page: seen.update(service=make(), page=page),
    )
    folder, *_ = made["nllb"]
    source, target, _ = CODES["nllb"]
    run("attention", folder, TEXTS[0], "--serve", *in_pair("nllb")[1])
    try:
        first = seen["service"].directions.models[0]
        assert (first.source, first.target, len(first.codes)) == (source, target, 202)
        assert seen["page"].startswith(f"/?source={source}&target={target}&q=The+old+house")
    finally:
        seen["service"].close()


def test_fine_tuning(made, tmp_path):
    """A run learns in the languages of its corpus, which its tokenizer keeps."""
    folder, *_ = made["m2m"]
    pair, valid, test = (
        write_files(tmp_path, name, *part)
        for name, part in (("train", (0, 40)), ("valid", (40, 8)), ("test", (48, 5)))
    )
    names = ["--source-file", pair[0], "--target-file", pair[1], "--source-language", "en"]
    sizes = ["--validation-files", *valid, "--test-files", *test, "--steps", 2]
    words = ["train", "--from", folder, *names, *sizes, "--output-dir", tmp_path / "run"]
    run(*words, "--target-language", "ast")
    translator = Translator.from_run(tmp_path / "run")
    tokenizer = translator.tokenizer
    assert (tokenizer.source_language, tokenizer.target_language) == ("en", "ast")
    [best] = translator.translate(TEXTS[0])
    assert best.token_ids[0] == tokenizer.languages["ast"]
    with pytest.raises(SystemExit):
        run(*words[:-1], tmp_path / "new", "--target-language", "asst")
