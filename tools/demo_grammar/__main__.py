"""Writes the `demo` corpus into the package: `python -m tools.demo_grammar`.

Another grammar gives other sentences: results on the old ones no longer hold, so say so.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from keras_attention.data import demo
from keras_attention.utils.files import sha256_of, write_atomically
from tools.demo_grammar.corpus import DemoExample, demo_examples


def as_tsv(examples: Iterable[DemoExample]) -> str:
    """Return a line for each pair: source, target, and links such as "0-0 2-1"."""
    return "".join(
        f"{example.source}\t{example.target}\t{' '.join(f'{s}-{t}' for s, t in example.links)}\n"
        for example in examples
    )


if __name__ == "__main__":
    for split, examples in demo_examples().items():
        path = demo.FOLDER / f"{split}.tsv.gz"
        path.parent.mkdir(exist_ok=True)
        # Without a time the same sentences give the same bytes.
        write_atomically(path, gzip.compress(as_tsv(examples).encode("utf-8"), mtime=0))
        print(f'    "{split}": "{sha256_of(path)}",')
