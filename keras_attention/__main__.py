"""`python -m keras_attention`: the same as `keras-attention`, but that Keras is imported at once."""

from keras_attention.cli.main import main

if __name__ == "__main__":
    main()
