"""Row (E): the perplexity of each length, beside NumPy's."""

import math

import common
import numpy as np
import pytest
import table3_positions
from keras import ops

from keras_attention import Tokenizer, Transformer, corpus_from_files

pytestmark = pytest.mark.backends("torch")

LINES = [" ".join(["dog"] * (1 + number % 5)) for number in range(11)]


def test_perplexity_by_length(tmp_path, monkeypatch):
    for side, line in (("en", "dog cat bird"), ("de", "hund katze vogel")):
        (tmp_path / f"train.{side}").write_text(f"{line}\n" * 20)
        (tmp_path / f"test.{side}").write_text("\n".join([*LINES, ""]))
    files = {part: (tmp_path / f"{part}.en", tmp_path / f"{part}.de") for part in ("train", "test")}
    corpus = corpus_from_files(files["train"], files["test"], files["test"])
    tokenizer = Tokenizer.train(["dog cat bird hund katze vogel"] * 20, vocabulary_size=290)
    models, trained = {}, []

    def train(corpus, config, folder):
        folder.mkdir(parents=True)
        tokenizer.save(folder / "tokenizer")
        model = Transformer(tokenizer.vocabulary_size, 1, 8, 6, 2, seed=3, **config.model_arguments)
        model.save(folder / "model.keras")
        models[config.model_arguments["position_layout"]] = model
        trained.append(config.max_length)

    monkeypatch.setattr("keras_attention.recipes.order.train_translation", train)
    monkeypatch.setattr(common, "corpus_of", lambda options: corpus)
    options = table3_positions.parser().parse_args(["--trained-length", "5"])
    for _ in range(2):
        result = table3_positions.main(options, tmp_path / "out")
    assert trained == [5, 5]
    sizes = {line: len(tokenizer.encode(line)) + 1 for line in LINES}
    for layout, model in models.items():
        expected = {}
        for line in LINES:
            ids = np.array([[*tokenizer.encode(line), tokenizer.end_token_id]])
            read = np.concatenate([[[tokenizer.start_token_id]], ids[:, :-1]], axis=1)
            inputs = {"encoder_token_ids": ids, "decoder_token_ids": read}
            logits = ops.convert_to_numpy(model(inputs))[0].astype("float64")
            losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(logits)), ids[0]]
            expected.setdefault(3 * (sizes[line] // 3), []).extend(losses)
        found = {length: values[0] for length, values in result[layout].items()}
        assert found.keys() == expected.keys() and len(found) > 1
        for length, losses in expected.items():
            np.testing.assert_allclose(found[length], np.exp(np.mean(losses)), rtol=1e-4)
    assert (tmp_path / "out" / "row_e_lengths.svg").exists()


def test_a_difference_between_seeds_is_resolved_or_not():
    found = {"interleaved": {6: [2.0, 4.0, 3.0], 9: [2.0, 4.0, 3.0]},
             "learned": {6: [2.2, 4.5, 3.3], 9: [2.2, 3.6, 3.3]}}  # fmt: skip
    table = table3_positions.results_table(found, 8)
    # By hand, from the logarithms of 1.1, 1.125 and 1.1 with 4.303 standard errors; 2.884 cubed is 24.
    assert table.rows[0] == ["6-8", "2.884", "3.197", "+10.8 % (+7.3 to +14.5)", "resolved"]
    assert table.rows[1][0] == "9-11 *" and table.rows[1][4] == "not resolved"
    for row in table.rows:  # Like beside like: the ratio is that of the two numbers before it.
        sines, learned, ratio = (float(cell.split(" ")[0]) for cell in row[1:4])
        assert math.isclose(100 * (learned / sines - 1), ratio, abs_tol=0.1)
    assert any("geometric means" in note for note in table.notes)
    one = {layout: {6: values[6][:1]} for layout, values in found.items()}
    assert table3_positions.results_table(one, 8).rows[0][3:] == ["+10.0 %", "not resolved"]
