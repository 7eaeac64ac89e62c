"""What `python benchmarks/...` does by itself: the folder of the script is where modules are found."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
