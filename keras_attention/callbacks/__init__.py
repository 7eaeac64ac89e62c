"""Keras callbacks: progress, budgets, checkpoints, scores, logs and pictures."""

from keras_attention.callbacks.attention_log import AttentionLog
from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.callbacks.best import BestCheckpoint, StopWithoutGain
from keras_attention.callbacks.budget import Budget
from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.callbacks.console import ConsoleProgress
from keras_attention.callbacks.huge_pages import HugePages
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.callbacks.nonfinite import NonFiniteTraining, StopOnNonFinite
from keras_attention.callbacks.resumed_fit import fit_resumably
from keras_attention.callbacks.signals import StopOnSignal, TrainingStopped
from keras_attention.callbacks.validation import TranslationScores, ValidationPerplexity

__all__ = [
    "AttentionLog",
    "BestCheckpoint",
    "Budget",
    "Checkpoints",
    "ConsoleProgress",
    "HugePages",
    "MetricsLog",
    "NonFiniteTraining",
    "RunCallback",
    "Stop",
    "StopOnNonFinite",
    "StopOnSignal",
    "StopWithoutGain",
    "TrainingMonitor",
    "TrainingStopped",
    "TranslationScores",
    "ValidationPerplexity",
    "fit_resumably",
]
