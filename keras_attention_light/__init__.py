"""What `keras_attention` can do without Keras: translate with a trained model, and answer commands.

`import keras_attention` imports Keras and its backend, which takes some seconds: Keras loads a saved model
only if its classes are registered. If a program imports this package first, Keras is imported only when it
is used. The command `keras-attention` and the examples do so.

>>> import keras_attention_light
>>> translator = keras_attention_light.load_translator("demo_en_de")
>>> translator("The dog sleeps.")
'Der Hund schläft.'

After that, `import keras_attention` is light, too, and its names import Keras when they are used. Before
`keras.saving.load_model`, use one of them, such as `keras_attention.models`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_attention.decoding.translator import Translator

__all__ = ["load_translator", "main"]


def load_translator(model: str | os.PathLike[str], **options: Any) -> Translator:
    """Return a `Translator` that decodes without Keras, on a CPU, by Numba, NumPy or CTranslate2.

    Args:
        model: The folder that a training wrote, or another pretrained model: see `Translator.from_preset`.
        **options: Arguments of `keras_attention.Translator`, in place of the model's.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds no finished model, the weights are damaged, or no engine can run it without
            Keras.
    """
    from keras_attention.data.presets import load
    from keras_attention.decoding.translator import Translator

    found = load(model)
    return Translator(found.spec, found.tokenizer, **{**found.known(), **options})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command `keras-attention`; see `keras_attention.cli.main`."""
    from keras_attention.cli.main import main

    main(arguments)
