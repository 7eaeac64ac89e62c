"""Draw attention as the paper's Figures 3 to 5 do, for any run and sentence, and the paper's own beside it.

Without arguments it trains the small model of the demo corpus first (synthetic; about five minutes on a
CPU, in OUTPUT_DIR/run; a stopped training goes on), then draws the attention of a demo sentence. `--run`
takes a run of your own. The pictures are PNG and SVG; a word asks in Figure 3, all words ask one head in
Figures 4 and 5.

What to expect, written down before the first run: the paper's own pictures come out line by line, since they
are drawn from the weights that stand in its PDFs. A small model's encoder heads look at neighbours and at the
sentence's end; that a word reaches a distant one as "making ... more difficult" does takes the paper's depth.
"""

# The command line starts Keras when it needs it, without the notes that TensorFlow writes: `--help` is quick.
import keras_attention_light  # noqa: F401
from keras_attention.cli.experiment import run

if __name__ == "__main__":
    run("attention_figures", __doc__)
