"""A Transformer's weights, run fast: encoder and decoding steps without the layers."""
