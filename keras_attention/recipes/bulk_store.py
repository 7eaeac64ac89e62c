"""Makes the token ids of a training text in chunks, with one process, a job array or a Ray cluster."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_attention.data.corpora import Corpus
from keras_attention.data.parallel_text import ParallelText
from keras_attention.data.token_chunks import CHUNK_PAIRS, TokenChunk, encoded_chunk, ids_type
from keras_attention.data.token_store import TokenStore, sampling_of
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.recipes.bulk import tokenizer_files
from keras_attention.recipes.bulk_folder import BulkFolder
from keras_attention.recipes.bulk_work import Work, check_spread, packed, run_chunks, unpacked
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import Run
from keras_attention.utils.files import remove_folder


@dataclasses.dataclass(frozen=True)
class TokenizeChunk:
    """The job of a worker. When called, it loads the tokenizer and returns the function for one chunk.

    The files are those of a saved tokenizer, by name; `sampling` is `dropout` and `seed`, or nothing.
    """

    files: dict[str, bytes]
    sampling: dict[str, Any]

    def __call__(self) -> Work:
        with unpacked(self.files) as folder:
            tokenizer = Tokenizer.load(folder)

        def work(lines: list[Any], chunk: Any) -> bytes:
            position = chunk.file, chunk.first // CHUNK_PAIRS
            return encoded_chunk(tokenizer, lines, position, self.sampling).packed()

        return work


class TextSample:
    """A parallel text as an input of bulk work; there is one such input for each sample."""

    def __init__(self, text: ParallelText, sample: int) -> None:
        self._text, self.name = text, f"sample {sample}"

    def __iter__(self) -> Iterator[Any]:
        return iter(self._text)

    def described(self, show_progress: bool) -> dict[str, Any]:
        """Return the number of pairs, and their fingerprint."""
        return {"lines": len(self._text), "fingerprint": self._text.fingerprint()}

    def check(self, described: Mapping[str, Any], thoroughly: bool) -> None:
        """Nothing to check: the folder's name contains the fingerprint of the text."""


class StoreFolder(BulkFolder):
    """A folder of chunks next to a future token store. When it is complete, the store is made from it.

    `wanted` is the result of `TokenStore.wanted`.
    """

    def __init__(
        self, store: Path, text: ParallelText, tokenizer: Tokenizer, wanted: dict[str, Any]
    ) -> None:
        inputs = [TextSample(text, sample) for sample in range(wanted.get("samples", 1))]
        super().__init__(
            store.with_name(f"{store.name}.chunks"),
            inputs,
            {"work": "tokens", **wanted},
            CHUNK_PAIRS,
        )
        self._store, self._tokenizer, self._wanted = store, tokenizer, wanted

    def joined(self) -> set[int]:
        """All inputs if the store is there, else none."""
        return set(range(len(self.inputs))) if self._store.exists() else set()

    def join_inputs(self, missing: Collection[int]) -> None:
        """Make the store, if no chunk is missing."""
        if missing:
            return

        def chunks() -> Iterator[TokenChunk]:
            for number in range(len(self.inputs)):
                for content in self.parts(number):
                    yield TokenChunk.unpacked(content, ids_type(self._tokenizer))

        TokenStore.written(self._store.parent, self._tokenizer, self._wanted, chunks)

    def results(self) -> list[Any]:
        """Return the store."""
        return [self._store]


def prepare_corpus(
    corpus: Corpus,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
    *,
    share: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    workers: int | None = None,
    show_progress: bool = True,
) -> Path | None:
    """Make, on many machines, the tokenizer and the token ids that `train_translation` makes first.

    The ids are made in chunks of 10,000 pairs, as in `translate_corpus`; a stopped call can be continued.
    The store is byte for byte the one that a single process makes. `train_translation`, called later with
    the same arguments, finds it.

    Args:
        corpus, config, output_dir: As for `train_translation`.
        share, ray, workers, show_progress: As in `translate_corpus`.

    Returns:
        The store's folder; None while other shares are missing.

    Raises:
        ValueError: As `train_translation` and `translate_corpus`.

    Example:

    ```python
    prepare_corpus(corpus, config, "runs/de-en", ray=True)
    train_translation(corpus, config, "runs/de-en")
    ```
    """
    run = Run(corpus, config, output_dir)
    check_spread(share, ray, workers, show_progress)
    if config.mixture:
        raise ValueError(
            "`prepare_corpus` makes one store, but a `mixture` has one for each part. Train without it: the "
            "stores are made first."
        )
    run.resolved.check(corpus.train)
    run.folder.check(run.settings, run.changeable, run.reasons)
    with run.folder.locked(timeout=-1):  # If several shares start at once, one makes the tokenizer.
        run.folder.claim(run.settings, run.changeable)
        tokenizer = run.tokenizer
    sampling = run.resolved.sampling
    wanted = TokenStore.wanted(corpus.train, tokenizer, **sampling)
    store = TokenStore.path(run.folder.store, wanted["text_fingerprint"], tokenizer, **sampling)
    folder = StoreFolder(store, corpus.train, tokenizer, wanted)
    if not store.exists():
        files = packed(tokenizer_files(run.folder.tokenizer), run.folder.tokenizer)
        job = TokenizeChunk(files, sampling_of(wanted))
        if not run_chunks(folder, job, share, ray, workers, show_progress, "tokenizing"):
            return None
    if folder.is_claimed():
        folder.check()  # that it is this folder
        remove_folder(str(folder.folder))
    return store
