"""The operations that cost, each with its definition in `keras.ops` and its choice of a fast form."""
