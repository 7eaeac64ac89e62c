"""The training recipe of the paper (section 5)."""

from keras_attention.training.checkpoint_store import load_checkpoint
from keras_attention.training.checkpoints import (
    average_checkpoints,
    list_checkpoints,
    save_average,
    select_checkpoints,
)
from keras_attention.training.distribution import distribution_scope, is_chief
from keras_attention.training.input_pipeline import as_tf_dataset
from keras_attention.training.joining import initialize_processes
from keras_attention.training.learning_rate import (
    CooldownToBudget,
    CosineToBudget,
    LearningRateSchedule,
    SimplexLearningRate,
)
from keras_attention.training.losses import LabelSmoothedCrossentropy, Perplexity, TokenAccuracy
from keras_attention.training.optimizer import Adam
from keras_attention.utils.files import DamagedFile

__all__ = [
    "Adam",
    "CooldownToBudget",
    "CosineToBudget",
    "DamagedFile",
    "LabelSmoothedCrossentropy",
    "LearningRateSchedule",
    "Perplexity",
    "SimplexLearningRate",
    "TokenAccuracy",
    "as_tf_dataset",
    "average_checkpoints",
    "distribution_scope",
    "initialize_processes",
    "is_chief",
    "list_checkpoints",
    "load_checkpoint",
    "save_average",
    "select_checkpoints",
]
