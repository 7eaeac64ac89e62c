"""Whole runs, from a corpus to a trained model, its translations and its report."""

from keras_attention.utils.lazily import imported_lazily

# On the first use of a name: the command line reads settings without Keras.
__getattr__, __dir__, __all__ = imported_lazily(
    __name__,
    {
        "bulk": ("score_corpus", "translate_corpus"),
        "catalog": ("RECIPES",),
        "config": ("TranslationConfig",),
        "export_check": ("check_export",),
        "finished_run": ("checkpoint_translator",),
        "order": ("train_translation",),
        "plan": ("Plan", "plan_training"),
    },
)
