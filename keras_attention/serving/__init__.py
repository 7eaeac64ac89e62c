"""Translations over HTTP, with the API of LibreTranslate: `keras-attention serve`."""
