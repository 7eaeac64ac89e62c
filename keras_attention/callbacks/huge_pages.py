"""Huge pages for the memory that TensorFlow takes during the first updates."""

from keras_attention.callbacks.base import RunCallback
from keras_attention.training.distribution import has_accelerator
from keras_attention.utils.backend import running_backend
from keras_attention.utils.memory import advise_huge_pages

# During the first updates, frameworks still allocate more memory.
WARMUP_UPDATES = 3


class HugePages(RunCallback):
    """Moves the memory that training uses after its first updates to huge pages, on TensorFlow with a CPU.

    TensorFlow allocates its memory in a few large pieces, never frees them, and has no setting for huge
    pages. On other backends, and with a GPU or a TPU, the callback does nothing: use
    `keras_attention.tune_memory` there.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((4, 3)), np.ones((4, 1))
    >>> history = model.fit(x, y, batch_size=1, callbacks=[HugePages()], verbose=0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._updates = 0

    def before_update(self, batch: int) -> None:
        is_tensorflow = running_backend() == "tensorflow"
        if self._updates == WARMUP_UPDATES and is_tensorflow and not has_accelerator():
            advise_huge_pages()
        self._updates += 1
