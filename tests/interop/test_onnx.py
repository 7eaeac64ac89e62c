"""`export(format="onnx")`: the same logits in onnxruntime, for batches of any size and length."""

import sys

import keras
import numpy as np
import pytest

from keras_attention import Transformer

V = 13


BACKEND = keras.backend.backend()


@pytest.mark.skipif(BACKEND not in ("torch", "jax"), reason="TensorFlow's exporter traces")
@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_what_cannot_be_exported_is_refused_by_name(tmp_path, kind):
    model = Transformer(V, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    name = {"torch": "PyTorch", "jax": "JAX"}[BACKEND]
    with pytest.raises(NotImplementedError, match=f"{name}'s .* Transformer.*=tensorflow"):
        model.export(tmp_path / "model.pt2", format=kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("package", ["onnx", "tf2onnx"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    model = Transformer(V, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    with pytest.raises(ImportError, match=f"format='onnx' needs .*pip install .*\\b{package}"):
        model.export(tmp_path / "model.onnx", format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.backends("tensorflow")
def test_a_model_that_was_only_built_is_exported_to_onnx(tmp_path):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = Transformer(V, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, seed=1)
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    rng = np.random.default_rng(3)
    for rows, source_length, target_length in ((2, 5, 3), (7, 4, 6), (1, 300, 260)):
        inputs = {
            "encoder_token_ids": rng.integers(1, V, (rows, source_length), "int32"),
            "decoder_token_ids": rng.integers(1, V, (rows, target_length), "int32"),
        }
        inputs["encoder_token_ids"][0, -1] = 0
        names = [node.name for node in session.get_inputs()]
        fed = {name: next(inputs[key] for key in inputs if name.endswith(key)) for name in names}
        (got,) = session.run(None, fed)
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(inputs)), atol=1e-5)
