"""Counts huge pages; without Keras, which processes of their own would wait for."""

import re
from pathlib import Path


def mebibytes_in_huge_pages():
    found = re.findall(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps").read_text())
    return sum(map(int, found)) / 1024
