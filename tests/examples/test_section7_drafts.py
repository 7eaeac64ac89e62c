"""Greedy search with drafts, beside a plain loop over the model and the package's own greedy search."""

import json

import common
import keras
import numpy as np
import pytest
import section7_drafts as script

from keras_attention import Tokenizer, Transformer, Translator, load_corpus

pytestmark = pytest.mark.backends("torch")

DEMO = load_corpus("demo")
SOURCES = ["a dog", "the old house", "cats and dogs", "the dog and the old cat"]


def babbler_of(suppressed):
    """A random model, whose learned positions limit some of its translations."""
    tokenizer = Tokenizer.train(SOURCES * 2, vocabulary_size=290)
    keras.utils.set_random_seed(6)
    model = Transformer(
        tokenizer.vocabulary_size, 1, 8, 12, 2, tie_weights=False, position_layout="learned",
        max_length=14, suppressed_token_ids=suppressed,
    )  # fmt: skip
    model.build()
    # Larger weights: the tokens vary, and depend on the source.
    model.set_weights([6 * weight if weight.ndim > 1 else weight for weight in model.get_weights()])
    return Translator(model, tokenizer, beam_size=1, max_extra_length=6, show_progress=False)


@pytest.fixture(scope="module")
def babbler():
    """It never produces what it would else begin with."""
    return babbler_of(greedy(babbler_of(()), SOURCES[0])[0][:1])


@pytest.fixture(scope="module")
def demo():
    model, tokenizer = (kind.from_preset("demo_en_de") for kind in (Transformer, Tokenizer))
    return Translator(model, tokenizer, beam_size=1, engine="torch", show_progress=False)


def greedy(translator, text):
    """The tokens of one sentence, one pass for each, without padding; and the number of passes."""
    model, tokenizer = translator.model, translator.tokenizer
    source = [*tokenizer.encode(text), tokenizer.end_token_id]
    limit = min(len(source) + translator.max_extra_length, model.max_length)
    tokens, passes = [], 0
    while len(tokens) < limit:
        read = [[model.start_token_id, *tokens]]
        inputs = {"encoder_token_ids": [source], "decoder_token_ids": read}
        inputs = {name: np.array(ids, "int32") for name, ids in inputs.items()}
        logits = keras.ops.convert_to_numpy(model(inputs))[0, -1].copy()
        logits[list(model.suppressed_token_ids)] = -np.inf
        passes += 1
        if logits.argmax() == tokenizer.end_token_id:
            break
        tokens.append(int(logits.argmax()))
    return tokens, passes


@pytest.fixture(scope="module")
def expected(babbler):
    """What greedy search finds for each source, and in how many passes."""
    return {text: greedy(babbler, text) for text in SOURCES}


def rubbish(translator, expected):
    """A draft that proposes any tokens, end tokens too, and more or fewer than it is asked for."""
    random = np.random.default_rng(3)
    size = translator.model.vocabulary_size
    return lambda source, output, k: [*random.integers(0, size, random.integers(0, 7)).tolist(), 1]


def oracle(translator, expected):
    """A draft that knows what greedy search finds, end token and all, from the source."""
    known = {
        (*translator.tokenizer.encode(text), 1): [*tokens, 1]
        for text, (tokens, _) in expected.items()
    }
    return lambda source, output, k: known[tuple(source)][len(output) : len(output) + k]


@pytest.mark.parametrize("kind, lookahead", [(rubbish, 4), (rubbish, 0), (oracle, 3), (oracle, 40)])
def test_whatever_is_proposed_the_output_is_greedy(kind, lookahead, babbler, expected):
    outputs, passes = zip(*expected.values(), strict=True)
    assert len({*map(tuple, outputs)}) == len(SOURCES) and len({*map(len, outputs)}) > 1
    found, made = script.drafted_search(babbler, SOURCES, kind(babbler, expected), lookahead)
    assert found == list(outputs)
    if kind is oracle:  # Each pass makes one more token than it accepts.
        assert made == sum(-(-number // (lookahead + 1)) for number in passes)
    elif lookahead == 0:
        assert made == sum(passes)


def test_fewer_passes_on_the_demo(demo):
    texts = [*DEMO.test.sources()][:33]
    draft = script.Draft.learn(demo.tokenizer, [*DEMO.train][:2500])
    proposed = []

    def propose(source, output, k):
        proposed.append((k, draft.propose(source, output, k)))
        return proposed[-1][1]

    expected = [best[0].token_ids for best in demo.translate(texts)]
    found, passes = script.drafted_search(demo, texts, propose, 4)
    assert list(map(tuple, found)) == expected
    assert sum(len(ids) + 1 for ids in expected) > 1.4 * passes
    assert passes == len(proposed) and all(len(tokens) <= k <= 4 for k, tokens in proposed)


def test_the_draft_counts_ngrams_and_weighs_them_by_the_source():
    """Both nouns follow the article equally often, and only the source says which one."""
    pairs = [("the dog", "der Hund"), ("the table", "der Tisch"), ("a dog", "ein Hund")]
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair] * 5, vocabulary_size=300)
    draft = script.Draft.learn(tokenizer, pairs)
    for source, target in pairs:
        source, target = ([*tokenizer.encode(text), 1] for text in (source, target))
        for k in (1, len(target)):
            assert draft.propose(source, [], k) == target[:k]
    assert draft.propose(source, target[:-1], 1) == [1]
    assert draft.propose(source, [], 0) == []


def test_command(tmp_path, capsys):
    out = tmp_path / "out"
    report = common.run(
        script.main,
        script.parser(),
        arguments=["--quick", "--sentences", "9", "--lookahead", "2", "--output-dir", str(out)],
    )
    written = json.loads((out / "section7_drafts.json").read_text())
    printed = capsys.readouterr().out
    assert report.items() <= written.items()
    assert report["sentences"] == 9 and report["sentences that differ from greedy search"] == 0
    greedy_passes, passes = (report[f"passes {x}"] for x in ("of greedy search", "with drafts"))
    assert report["tokens a pass"] == round(greedy_passes / passes, 3) > 1
    assert f"{report['tokens a pass']:,}" in printed
