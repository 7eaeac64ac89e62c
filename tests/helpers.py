"""What tests of several rooms share."""

from keras import ops


def numpy(tensor):
    """A tensor of any backend and float dtype as a float32 NumPy array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
