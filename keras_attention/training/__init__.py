"""The training recipe of the paper (section 5)."""

from keras_attention.training.callbacks import (
    Budget,
    Checkpoints,
    ConsoleProgress,
    StopOnSignal,
)
from keras_attention.training.checkpoints import average_checkpoints, save_weights_atomically
from keras_attention.training.learning_rate import LearningRateSchedule
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.training.metrics import Perplexity, TokenAccuracy
from keras_attention.training.optimizer import Adam

__all__ = [
    "Adam",
    "Budget",
    "Checkpoints",
    "ConsoleProgress",
    "LabelSmoothedCrossentropy",
    "LearningRateSchedule",
    "Perplexity",
    "StopOnSignal",
    "TokenAccuracy",
    "average_checkpoints",
    "save_weights_atomically",
]
