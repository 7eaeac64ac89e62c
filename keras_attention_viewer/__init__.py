"""The attention viewer: every layer and head of a Transformer, at every logged step, in a browser.

It runs in three places: in the *Attention* tab of TensorBoard, in one HTML file (`save_html`), and in a
notebook (`show`). It needs only NumPy: it imports neither Keras nor a backend, and its pages load nothing
from the network.

An `Entry` holds the attention of one sentence at one step of training:

>>> import numpy as np
>>> from keras_attention_viewer import describe_tokens, make_entry, measured, save_html
>>> source = describe_tokens(["▁a", "▁dog", "</s>"], special=[2])
>>> read = describe_tokens(["<start>", "▁ein", "▁Hund"], special=[0])
>>> predicted = describe_tokens(["▁ein", "▁Hund", "</s>"], special=[2])
>>> weights = {"cross": [np.eye(3)[None]]}  # one layer, one head
>>> entry = make_entry(0, "a dog", "ein Hund", source, read, predicted, weights, alignment=[(0, 0), (1, 1)])
>>> head = measured([entry])[0].header["measures"]["cross"][0][0]
>>> head["aer"], head["aer_row"]
(0.0, 'predicted')
>>> import pathlib, tempfile
>>> path = save_html(pathlib.Path(tempfile.mkdtemp()) / "dog.html", measured([entry]))
>>> path.name
'dog.html'
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "Entry": "codec",
    "RecordError": "codec",
    "alignment_error_rate": "alignment",
    "contributions": "contribution",
    "describe_tokens": "tokens",
    "make_entry": "codec",
    "measured": "measures",
    "merge_words": "alignment",
    "save_html": "page",
    "show": "page",
    "split_words": "tokens",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    # On first use: TensorBoard imports this package when it starts, even if the viewer is not used.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
