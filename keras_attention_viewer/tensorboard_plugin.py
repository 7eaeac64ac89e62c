"""How TensorBoard finds the viewer: the entry point of the group `tensorboard_plugins`.

TensorBoard imports this module whenever it starts, and would not start if the import failed. So there
is nothing here but the loader; the viewer itself is imported in `load`, whose errors TensorBoard logs.
"""

from __future__ import annotations

from typing import Any

from tensorboard.plugins import base_plugin


class AttentionLoader(base_plugin.TBLoader):
    """Loads the *Attention* tab."""

    def fix_flags(self, flags: Any) -> None:
        """Keep all logged steps: by default TensorBoard keeps a random sample of ten."""
        samples = getattr(flags, "samples_per_plugin", None)
        if isinstance(samples, dict):
            samples.setdefault("attention", 0)

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Return the plugin; None where TensorBoard has no data provider."""
        if context.data_provider is None:
            return None
        from keras_attention_viewer.tensorboard_routes import AttentionPlugin

        return AttentionPlugin(context)
