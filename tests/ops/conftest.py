"""Tells tests of the kernels whether a kernel ran or left the work to the definition."""

import pytest

from keras_attention.ops import dispatch, reference


@pytest.fixture
def definitions(monkeypatch):
    """The names of the definitions that were computed in place of kernels, in order."""
    names = []

    def recorded(name, definition):
        def call(*args, **kwargs):
            names.append(name)
            return definition(*args, **kwargs)

        return call

    for name in dispatch.kernels().keys() & vars(reference):  # the others are Keras' own
        monkeypatch.setattr(reference, name, recorded(name, reference.DEFINITIONS[name]))
    return names
