"""What every room may use: files, progress, memory."""

from keras_attention.utils.memory import tune_memory

__all__ = ["tune_memory"]
