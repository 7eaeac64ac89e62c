"""Pictures: attention as heat maps and lines, curves of the recipe, and TensorBoard logs."""

from keras_attention.visualization.attention_entries import attention_entries, token_ranks
from keras_attention.visualization.attention_page import save_attention, show_attention
from keras_attention.visualization.curves import learning_rate_figure, positional_encoding_figure
from keras_attention.visualization.diagram import diagram
from keras_attention.visualization.event_files import SummaryWriter
from keras_attention.visualization.heatmaps import attention_figure, attention_figures
from keras_attention.visualization.paper_lines import paper_attention_figure

__all__ = [
    "SummaryWriter",
    "attention_entries",
    "attention_figure",
    "attention_figures",
    "diagram",
    "learning_rate_figure",
    "paper_attention_figure",
    "positional_encoding_figure",
    "save_attention",
    "show_attention",
    "token_ranks",
]
