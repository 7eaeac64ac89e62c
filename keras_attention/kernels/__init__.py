"""Operations that cost, each beside its plain `keras.ops` definition; layers never ask which backend runs."""
