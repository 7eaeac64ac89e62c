"""What `keras_attention` can do without Keras: translate with a finished run, and answer on the command line.

`import keras_attention` imports Keras and its backend, which takes some seconds: Keras loads a saved model
only if its classes are registered. If a program imports this package first, Keras is imported only when it
is used. The command `keras-attention` and the examples do so.

>>> import keras_attention_light
>>> translator = keras_attention_light.load_translator("runs/demo")  # doctest: +SKIP
>>> translator("The dog sleeps.")  # doctest: +SKIP
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


def load_translator(run: str | os.PathLike[str], **options: Any) -> Translator:
    """Return a `Translator` of a finished run that decodes without Keras, on a CPU, by Numba or CTranslate2.

    Args:
        run: The folder that a training wrote.
        **options: Arguments of `keras_attention.Translator`, in place of the run's.

    Raises:
        ValueError: If it is not the folder of a run, the run is not finished, its weights are damaged,
            or no engine can run it without Keras.
    """
    from keras_attention.decoding.translator import Translator

    return Translator.from_spec(run, **options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command `keras-attention`; see `keras_attention.cli.main`."""
    from keras_attention.cli.main import main

    main(arguments)
