"""Keras callbacks: progress, budgets, checkpoints, scores, logs and pictures."""

from keras_attention.utils.lazily import imported_lazily

__getattr__, __dir__, __all__ = imported_lazily(
    __name__,
    {
        "attention_log": ("AttentionLog",),
        "base": ("RunCallback", "Stop"),
        "best": ("BestCheckpoint", "StopWithoutGain"),
        "budget": ("Budget",),
        "checkpoints": ("Checkpoints",),
        "console": ("ConsoleProgress",),
        "huge_pages": ("HugePages",),
        "metrics_log": ("MetricsLog",),
        "monitor": ("TrainingMonitor",),
        "nonfinite": ("NonFiniteTraining", "StopOnNonFinite"),
        "resumed_fit": ("fit_resumably",),
        "signals": ("StopOnSignal", "TrainingStopped"),
        "validation": ("TranslationScores", "ValidationPerplexity"),
    },
)
