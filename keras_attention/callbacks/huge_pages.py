"""Huge pages for the memory that TensorFlow takes during the first updates."""

from typing import Any

import keras

from keras_attention.training.distribution import has_accelerator
from keras_attention.utils.memory import advise_huge_pages

# In the beginning frameworks take more memory with each update.
WARMUP_UPDATES = 3


class HugePages(keras.callbacks.Callback):
    """Turns what training uses after its first updates into huge pages, on TensorFlow and CPUs.

    TensorFlow takes its memory in few large pieces, which it never gives back, and has no setting for
    this. On the other backends, and with a GPU or a TPU, the callback does nothing:
    `keras_attention.tune_memory` serves there.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((4, 3)), np.ones((4, 1))
    >>> history = model.fit(x, y, batch_size=1, callbacks=[HugePages()], verbose=0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._updates = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._updates += 1
        is_tensorflow = keras.backend.backend() == "tensorflow"
        if self._updates == WARMUP_UPDATES and is_tensorflow and not has_accelerator():
            advise_huge_pages()
