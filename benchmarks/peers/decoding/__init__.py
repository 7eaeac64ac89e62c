"""The programs that `decode.py` times, one a file; all translate the job of `job.py`."""
