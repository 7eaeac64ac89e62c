"""Subjects that need no library: what the harness is tried on, in its child processes."""

import os
import subprocess
import sys
import time

from harness.subject import Subject


class Dummy(Subject):
    def __init__(self, loss=2.0, seconds=0.5, path=None, name="", bad=None):
        self.loss, self.seconds, self.path, self.name, self.bad = loss, seconds, path, name, bad

    def prepare(self):
        print('{"value": "not an answer"}', flush=True)
        if self.bad == "raises":
            raise ValueError("no model here")
        if self.bad == "dies":
            print("out of luck", flush=True)
            os._exit(7)
        if self.bad == "hangs":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", self.name])
            time.sleep(600)
        return {"work": {"tokens": 100}}

    def check(self):
        return {} if self.loss is None else {"loss": self.loss}

    def run(self, count):
        if self.bad == "dies later" and count > 1:
            os._exit(3)
        if self.path:
            with open(self.path, "a") as file:
                file.write(self.name)
        if self.bad == "grows":
            data = bytearray(300 << 20)
            data[:: 1 << 12] = b"x" * len(data[:: 1 << 12])
        return [self.seconds] * count

    def echo(self, text):
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        return {"text": text, "cpus": cpus, "variable": os.environ.get("A_VARIABLE")}
