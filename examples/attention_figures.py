"""Draw attention in the style of the paper's Figures 3 to 5, for any run and sentence, and the paper's own.

Without arguments, this first trains the small model of the demo corpus (synthetic; about five minutes on a
CPU, in OUTPUT_DIR/run; a stopped training continues). Then it draws the attention of a demo sentence. With
`--run` it uses a run of yours. The pictures are PNG and SVG. Figure 3 shows what one word reads in all
heads; Figures 4 and 5 show what all words read in one head.

What to expect, written before the first run: the paper's own pictures come out the same, line by line,
because they are drawn from the weights in its PDF. A small model's encoder heads look at neighbours and at
the end of the sentence. A link to a distant word, such as "making ... more difficult", needs the paper's
depth.
"""

# First: Keras then starts only when it is needed, without TensorFlow's log messages, and `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("attention_figures", __doc__)
