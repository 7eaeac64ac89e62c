"""Utilities for all rooms: files, checks of arguments, progress, memory."""

from keras_attention.utils.memory import tune_memory

__all__ = ["tune_memory"]
