"""Imported before TensorFlow: its notes on processors and drivers are not what a run is read for."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
