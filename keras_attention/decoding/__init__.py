"""From a model to text: beam search, and the `Translator` around it."""

from keras_attention.utils.lazily import imported_lazily

# The plain search and the constraints need Keras; a `Translator` that runs a spec does not.
_PLACES = {
    "plain_search": ("beam_search",),
    "constraints": ("ForcedPrefix", "RequiredPhrases", "TextConstraint"),
    "hypotheses": ("BeamSearchResult",),
    "restrictions": ("Restrictions",),
    "sampling": ("Sampling",),
    "translation": ("Translation",),
    "translator": ("Translator",),
    "onnx_export": ("export_onnx",),
    "saved_model": ("export_saved_model",),
    "verified_preset": ("VerifiedPreset", "verify_preset"),
}
__getattr__, __dir__, __all__ = imported_lazily(__name__, _PLACES)
