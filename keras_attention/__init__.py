"""keras_attention: the Transformer of "Attention Is All You Need" for Keras 3."""

import sys

from keras_attention.utils.backend import check_backend
from keras_attention.utils.lazily import imported_lazily

__version__ = "0.1.0"

# Keras can load a saved model only if its classes are registered, so these modules are imported at once.
# After `import keras_attention_light` Keras is imported only when it is used.
if "keras_attention_light" not in sys.modules:
    check_backend()
    from keras_attention import layers, models, training  # noqa: F401

# Subpackage -> its public names. A subpackage is imported on the first use of one of its names.
_PUBLIC_NAMES = {
    "layers": (
        "FeedForward",
        "MultiHeadAttention",
        "PositionalEncoding",
        "ResidualConnection",
        "SSRU",
        "TokenEmbedding",
        "TransformerDecoderBlock",
        "TransformerEncoderBlock",
    ),
    "models": (
        "WEIGHTED_PRESETS",
        "BranchedAttention",
        "Transformer",
        "TransformerDecoder",
        "TransformerEncoder",
        "WeightedTransformer",
    ),
    "training": (
        "Adam",
        "LabelSmoothedCrossentropy",
        "LearningRateSchedule",
        "Perplexity",
        "SimplexLearningRate",
        "TokenAccuracy",
        "as_tf_dataset",
        "average_checkpoints",
    ),
    "data": (
        "Corpus",
        "ParallelText",
        "TokenBatches",
        "TokenStore",
        "Tokenizer",
        "corpus_from_files",
        "corpus_from_tsv",
        "load_corpus",
        "write_corpus",
    ),
    "decoding": (
        "Restrictions",
        "Sampling",
        "Translation",
        "Translator",
        "beam_search",
        "export_onnx",
        "export_saved_model",
        "verify_preset",
    ),
    "evaluation": (
        "corpus_bleu",
        "corpus_chrf",
        "evaluation_report",
        "head_importance",
        "matmul_peak",
        "paired_tests",
        "perplexity",
        "tokenized_bleu",
        "training_cost",
        "training_flops",
        "write_report",
    ),
    "interop": ("export_ctranslate2", "export_hugging_face"),
    "spec": ("PRESETS", "TransformerSpec"),
    "callbacks": (
        "AttentionLog",
        "HugePages",
        "MetricsLog",
        "TrainingMonitor",
        "TranslationScores",
    ),
    "visualization": ("SummaryWriter",),
    "utils": ("tune_memory",),
    "recipes": ("TranslationConfig", "check_export", "train_translation", "translate_corpus"),
}
__getattr__, __dir__, __all__ = imported_lazily(__name__, _PUBLIC_NAMES, modules_too=True)
