"""A spec in a folder: read back unchanged, and refused if a file was changed."""

import json

import numpy as np
import pytest

from keras_attention.spec import SpecError
from keras_attention.spec.files import load_spec, save_spec
from keras_attention.spec.parts import as_array
from keras_attention.utils.files import DamagedFile, read_signed_json, write_signed_json
from tests.models.test_options import RICH
from tests.spec.test_spec import EVERY_OPTION, model_with

pytestmark = pytest.mark.backends("torch")


@pytest.mark.parametrize("options", [{}, EVERY_OPTION, RICH])
def test_round_trip(options, tmp_path):
    spec = model_with(**options).spec()
    save_spec(spec, tmp_path / "spec")
    read = load_spec(tmp_path / "spec")
    assert read.options() == spec.options()
    of_tokens = ("start_token_id", "end_token_id", "pad_token_id", "suppressed_token_ids")
    for name in (*of_tokens, "dtype", "max_length"):
        assert getattr(read, name) == getattr(spec, name), name
    weights = read.weights()
    assert weights.keys() == spec.weights().keys() and len(weights) > 40
    for path, weight in spec.weights().items():
        assert type(weights[path]) is np.ndarray and weights[path].dtype == "float32"
        np.testing.assert_array_equal(weights[path], as_array(weight), err_msg=path)


def test_a_newer_spec_takes_the_place_of_the_old_one(tmp_path):
    for scale in (1.0, 2.0):
        model = model_with()
        model.token_embedding.embeddings.assign(scale * model.token_embedding.embeddings)
        save_spec(model.spec(), tmp_path / "spec")
    expected = as_array(model.token_embedding.embeddings)
    np.testing.assert_array_equal(load_spec(tmp_path / "spec").embedding.embeddings, expected)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["spec", "spec.json", "weights.npz"]


def test_what_is_absent_or_has_unknown_parts_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"no spec.json.*from_run"):
        load_spec(tmp_path / "spec")
    save_spec(model_with().spec(), tmp_path / "spec")
    file = tmp_path / "spec" / "spec.json"
    declared = read_signed_json(file)
    unknown = json.loads(json.dumps(declared).replace("FeedForwardSpec", "Popen"))
    write_signed_json(file, unknown)
    with pytest.raises(DamagedFile, match="Popen"):
        load_spec(tmp_path / "spec")


@pytest.mark.parametrize(("window", "readable"), [("null", True), ("3", False)])
def test_an_option_that_parts_no_longer_have_is_read_as_none_only(window, readable, tmp_path):
    save_spec(model_with().spec(), tmp_path / "spec")
    file = tmp_path / "spec" / "spec.json"
    of_attention = '"part": "AttentionSpec", '
    text = json.dumps(read_signed_json(file))
    assert of_attention in text
    written = json.loads(text.replace(of_attention, f'{of_attention}"window": {window}, '))
    write_signed_json(file, written)
    if readable:
        assert load_spec(tmp_path / "spec").options() == model_with().spec().options()
    else:
        with pytest.raises(DamagedFile, match="window"):
            load_spec(tmp_path / "spec")
