"""The formats of folders with a model: one file for each, and their table in `data.presets`."""
