"""The programs that the benchmarks compare, one small file each; all are a `Peer`.

`training/` holds those of `train_update.py`, `decoding/` those of `decode.py`. All of a benchmark start
from the same weights (`weights.py`), are given the same work, and say in their facts where they differ.
"""
