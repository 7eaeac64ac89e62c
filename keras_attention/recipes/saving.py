"""The files of a trained model in a run's folder."""

import contextlib

from keras_attention.models.pretrained import assign_weights
from keras_attention.models.transformer import Transformer
from keras_attention.spec import SpecError
from keras_attention.spec.files import save_spec
from keras_attention.utils.files import atomic_path, remove_folder
from keras_attention.utils.run_folder import RunFolder


def save_model(model: Transformer, folder: RunFolder) -> None:
    """Save a model as `model.keras`, and its spec, which needs no Keras, in `spec/`.

    Of a model with LoRA, both have merged kernels, and others open them as any other.
    """
    # A process that is killed in between leaves a model without a spec, never with a wrong one.
    if folder.spec.exists():
        remove_folder(folder.spec)
    with atomic_path(folder.model) as partial:
        _merged(model).save(partial)
    with contextlib.suppress(SpecError):  # A model that no spec can describe: only Keras loads it.
        save_spec(model.spec(), folder.spec)


def _merged(model: Transformer) -> Transformer:
    """Return a model without LoRA. Keras would merge in the precision of the computation."""
    if model.lora_rank is None:
        return model
    plain = type(model).from_config(model.get_config())
    assign_weights(plain, model.spec())
    return plain
