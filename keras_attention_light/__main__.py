"""`python -m keras_attention_light`: the same as `keras-attention`."""

from keras_attention_light import main

if __name__ == "__main__":
    main()
