"""Multi30K image captions, English to German, on a CPU in an hour: a recipe for small real corpora.

`--data-dir` names a folder with the corpus' files; without it they are downloaded.
"""

from keras_attention.recipes import run

if __name__ == "__main__":
    run(__doc__, default_corpus="multi30k")
