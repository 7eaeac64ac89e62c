"""Tells tests of the kernels whether a kernel ran or left the work to the definition."""

import pytest

from keras_attention.ops import reference


@pytest.fixture
def definitions(monkeypatch):
    """The names of the definitions that kernels called, in order."""
    names = []

    def recorded(name, definition):
        def call(*args, **kwargs):
            names.append(name)
            return definition(*args, **kwargs)

        return call

    for name, definition in reference.DEFINITIONS.items():
        monkeypatch.setattr(reference, name, recorded(name, definition))
    return names
