"""Records are exact to their precision, and refuse what they cannot be."""

import gzip
import json

import numpy as np
import pytest

from keras_attention_viewer import Entry, RecordError, codec, make_entry, measured
from keras_attention_viewer.thoughts import decode_norms
from tests.viewer.entries import SOURCE, TARGET, random_entry, sentence_entry, softmax_weights

pytestmark = pytest.mark.backends("torch")


def test_blobs_hold_every_weight_rounded():
    rng = np.random.default_rng(1)
    s, t = len(SOURCE), len(TARGET)
    weights = {
        "cross": [softmax_weights(rng, 3, t, s) for _ in range(2)],
        "encoder": [softmax_weights(rng, 3, s, s) for _ in range(2)],
    }
    entry = Entry.from_blobs(sentence_entry(weights, step=17, loss=2.5).to_blobs())
    assert [kind["name"] for kind in entry.header["kinds"]] == ["encoder", "cross"]
    assert [kind["first_blob"] for kind in entry.header["kinds"]] == [1, 3]
    assert entry.header["step"] == 17
    assert entry.header["loss"] == 2.5
    for name, layers in weights.items():
        for layer, stored in zip(layers, entry.weights[name], strict=True):
            np.testing.assert_array_equal(stored, np.floor(layer * 65535 + 0.5))


def test_rows_of_400_tokens_sum_to_one():
    weights = softmax_weights(np.random.default_rng(2), 2, 5, 400)
    stored = codec.decode_weights(codec.encode_weights(codec.quantize(weights)), (2, 5, 400))
    np.testing.assert_allclose(stored / 65535, weights, atol=8e-6, rtol=0)
    np.testing.assert_allclose((stored / 65535).sum(-1), 1, atol=1e-3)


def test_weights_are_little_endian_and_the_same_each_time():
    blob = codec.encode_weights(np.array([[[1, 65535]]], "uint16"))
    assert gzip.decompress(blob) == b"\x01\x00\xff\xff"
    assert blob == codec.encode_weights(np.array([[[1, 65535]]], "uint16"))


def test_tags():
    assert codec.parse_tag(codec.entry_tag(12, "output")) == (12, "output")
    wrong = ["attention/01/output", "attention/-1/output", "attention/1/other", "x", "attention/1"]
    for other in [*wrong, "attention/1/output/2"]:
        assert codec.parse_tag(other) is None


def thinking(**changed):
    """An entry with everything beside its weights, one layer of two heads."""
    weights = {"cross": [softmax_weights(np.random.default_rng(3), 2, len(TARGET), len(SOURCE))]}
    norms = np.arange(2 * len(SOURCE)).reshape(2, len(SOURCE)) / 7
    given = {
        "predictions": [{"p": i / 7, "others": [["a", 0.5]]} for i in range(len(TARGET))],
        "alternatives": [{"text": "b", "score": -1.25, "is_finished": True}],
        "value_norms": {"cross": [norms]},
    }
    return sentence_entry(weights, **{**given, **changed}), norms


def test_what_a_model_thought_is_kept():
    entry, norms = thinking()
    header = Entry.from_blobs(entry.to_blobs()).header
    assert [one["p"] for one in header["predictions"]] == [i / 7 for i in range(len(TARGET))]
    assert header["alternatives"] == [{"text": "b", "score": -1.25, "is_finished": True}]
    stored = decode_norms(header["value_norms"]["cross"], (1, 2, len(SOURCE)))
    np.testing.assert_allclose(stored[0], norms, rtol=1e-7)
    for name in ("predictions", "alternatives", "value_norms"):
        del header[name]  # as older versions wrote it
    Entry.from_blobs([codec.encode_header(header), *entry.to_blobs()[1:]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"predictions": [{"p": 0.5, "others": []}]}, "a prediction for each of 5 tokens"),
        ({"predictions": [{"p": 1.5, "others": []}] * 5}, "has no probability"),
        ({"predictions": [{"p": np.nan, "others": []}] * 5}, "has no probability"),
        ({"predictions": [{"p": 0.5, "others": [["a"]]}] * 5}, "runners-up"),
        ({"alternatives": [{"text": "b", "score": -1.0}]}, "each of its alternatives"),
        ({"value_norms": {"cross": [np.ones((2, 3))]}}, "bytes of norms"),
        ({"value_norms": {"cross": [-np.ones((2, 7))]}}, "at least 0"),
        ({"value_norms": {"encoder": [np.ones((2, 7))]}}, "kinds that it does not have"),
    ],
)
def test_thoughts_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        thinking(**changed)


def test_a_long_translation_is_kept():
    beam = [{"text": "so " * 10_000, "score": -1.0, "is_finished": False}]
    assert (
        Entry.from_blobs(thinking(alternatives=beam)[0].to_blobs()).header["alternatives"] == beam
    )


@pytest.mark.parametrize("norms", ["AAAA", "?", 3, {}])
def test_damaged_norms_are_refused(norms):
    header = {**thinking()[0].header, "value_norms": {"cross": norms}}
    with pytest.raises(RecordError, match="norms"):
        codec.decode_header(codec.encode_header(header))


def test_an_entry_at_base_size_has_at_most_three_and_a_half_megabytes():
    """Five sentences of 60 tokens, with everything that an entry may have."""
    rng, n = np.random.default_rng(5), 60
    names = [f"▁piece{i}" for i in range(n - 1)] + ["</s>"]

    def layers(causal=False):
        return [softmax_weights(rng, 8, n, n, causal) for _ in range(6)]

    others = [[f"▁other{i}", 0.012345 * i] for i in range(1, 6)]
    entry = sentence_entry(
        {"encoder": layers(), "decoder": layers(causal=True), "cross": layers()},
        source=names,
        translation=names,
        predictions=[{"p": 0.123456, "others": others}] * n,
        value_norms={name: list(rng.gamma(2, size=(6, 8, n))) for name in codec.KINDS},
    )
    entries = measured([entry] * 5, [entry] * 10)
    assert sum(len(blob) for one in entries for blob in one.to_blobs()) < 3.5e6


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"crossed": [np.ones((1, 5, 7))]}, "Expected weights of"),
        ({"cross": [np.full((1, 5, 6), 0.1)]}, r"shape \(heads, 5, 7\)"),
        ({"cross": [np.full((2, 5, 7), 0.1), np.full((1, 5, 7), 0.1)]}, "in each layer of 'cross'"),
        ({"cross": [np.full((5, 7), 0.1)]}, "one sentence in one layer"),
        ({"cross": [np.full((1, 5, 7), 1.5)]}, "after the softmax"),
        ({"cross": [np.full((1, 5, 7), np.nan)]}, "after the softmax"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        sentence_entry(weights)


def test_alignment_must_name_words_that_are_there():
    weights = {"cross": [np.full((1, 5, 7), 1 / 7)]}
    entry = sentence_entry(weights, alignment=[(2, 1), (0, 0)])
    assert entry.header["alignment"] == [[0, 0], [2, 1]]
    with pytest.raises(ValueError, match=r"words that are not there: \[5, 0\]"):
        sentence_entry(weights, alignment=[(5, 0)])  # "dogs" is one word: the last is 4


def changed(**changes):
    header = json.loads(gzip.decompress(random_entry(np.random.default_rng(3)).to_blobs()[0]))
    return gzip.compress(json.dumps({**header, **changes}).encode())


def cross_kind(**changes):
    sizes = {"layers": 1, "heads": 1, "first_blob": 1}
    return {"name": "cross", "rows": "decoder", "columns": "source", **sizes, **changes}


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"no gzip", "damaged"),
        (random_entry(np.random.default_rng(4)).to_blobs()[0][:-9], "damaged.*cut off"),
        (gzip.compress(b'{"version": NaN}'), "damaged"),
        (gzip.compress(b"[" * 100_000), "damaged"),
        (gzip.compress(bytes(1 << 26)), "damaged.*more than"),
        (gzip.compress(b"[1]"), "version None"),
        (changed(version=0), "version 0; this viewer reads version 1"),
        (changed(tokens={"source": []}), "token lists"),
        (changed(kinds=[{"name": "cross"}]), "kinds"),
        (changed(kinds=[cross_kind(layers=-1)]), "layers, heads"),
        (changed(kinds=[cross_kind(heads=10**9)]), "too many"),
        (changed(target="else"), "target"),
        (changed(step=-1), "step"),
        (changed(alignment=[[0]]), "pairs of word indices"),
        (changed(step=10**400), "step"),
        (changed(kinds=[cross_kind(name=[])]), "kinds should be"),
        (changed(kinds=[cross_kind(heads=10**400)]), "layers, heads"),
        (changed(kinds=[cross_kind(layers=2**31)]), "layers, heads"),
        (changed(source_text=None), "texts"),
        (changed(target_text=["a"]), "texts"),
        (changed(predictions=[{"p": 10**400, "others": []}] * 5), "has no probability"),
        (changed(predictions=[{"p": 0, "others": [["a", 10**400]]}] * 5), "runners-up"),
        (
            changed(alternatives=[{"text": "b", "score": -(10**400), "is_finished": True}]),
            "each of its alternatives",
        ),
    ],
    # Gzip's bytes hold the time, and pytest-xdist wants the same names in all of its processes.
    ids=lambda value: value if isinstance(value, str) else "blob",
)
def test_headers_that_cannot_be_read_say_why(blob, message):
    with pytest.raises(RecordError, match=message):
        codec.decode_header(blob)


def test_weights_of_another_size_or_cut_off_are_refused():
    blob = codec.encode_weights(np.ones((2, 3, 5), "uint16"))
    for shape in ((2, 3, 4), (2, 3, 6)):
        with pytest.raises(RecordError, match="more than|Expected 72 bytes.*Received: 60"):
            codec.decode_weights(blob, shape)
    with pytest.raises(RecordError, match="cut off"):
        codec.decode_weights(blob[:-4], (2, 3, 5))
    blobs = random_entry(np.random.default_rng(5)).to_blobs()
    with pytest.raises(RecordError, match="should have 7 parts. Received: 6"):
        Entry.from_blobs(blobs[:-1])


def test_decoder_reads_as_many_tokens_as_it_predicts():
    tokens = [{"text": "a", "word": 0, "special": False, "punctuation": False, "rank": None}]
    with pytest.raises(ValueError, match="reads 1 tokens and predicts 2"):
        make_entry(0, "a", "a", tokens, tokens, tokens * 2, {"encoder": [np.ones((1, 1, 1))]})
