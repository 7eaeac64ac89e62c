"""What `benchmarks/train_update.py` compares: one small file for each program, and what they share.

All start from the same numbers (`weights.py`), are fed the same batches (`batches.py`), have dropout 0.1,
label smoothing 0.1 and Adam with the paper's constants, and say in their facts where they differ.
"""
