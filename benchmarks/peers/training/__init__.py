"""The programs of `train_update.py`: the same batches, dropout, label smoothing and constants of Adam."""
