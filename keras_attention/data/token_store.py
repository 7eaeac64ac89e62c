"""Tokenised parallel text on disk, built once and memory-mapped."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from keras_attention.data.presegmented import SIDES
from keras_attention.data.tokenizer import PAD_TOKEN_ID, Tokenizer
from keras_attention.utils.arguments import Count, FromZero, Has, Rate, checked
from keras_attention.utils.checks import check_choice, check_integer
from keras_attention.utils.files import OccupiedPath, atomic_folder, remove_leftovers
from keras_attention.utils.folder import Folder
from keras_attention.utils.progress import Progress
from keras_attention.utils.sides import encode_side, end_of, target_size_of

# Must not change: with dropout, the random numbers depend on the chunk.
CHUNK_PAIRS = 10_000
OFFSETS = np.dtype("<i8")
STORE = Folder(
    *("token store", "metadata.json", "text_fingerprint"),
    "Delete the folder of this store and build it again.",
    version=2,
)


class TokenStore:
    """Token ids of a parallel text. Each sentence ends with the end token.

    Create one with `TokenStore.build` or `TokenStore.open`. The ids stay on disk (two bytes each, four
    for a large vocabulary) and are memory-mapped. So a store may be larger than the memory, and
    processes share it. Opening a store reads its files once, to verify their checksums.

    Args:
        folder: Folder of one store.

    Attributes:
        metadata: Dict with the numbers of pairs and tokens, and the fingerprints of text and tokenizer.
        source_lengths, target_lengths: Int32 arrays (pairs,), the tokens of each sentence, end token
            included.

    Raises:
        ValueError: If there is no store in the folder, or it has another format version.
        DamagedFile: If a file was changed after it was written.

    Example:

    >>> import tempfile
    >>> from keras_attention.data.corpora import load_corpus
    >>> text = load_corpus("demo").validation
    >>> tokenizer = Tokenizer.train(text.sources(), vocabulary_size=400)
    >>> store = TokenStore.build(tempfile.mkdtemp(), text, tokenizer)
    >>> len(store) == len(text)
    True
    >>> int(store.source(0)[-1]) == tokenizer.end_token_id
    True
    """

    @checked
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.metadata = STORE.read(self.folder)
        dtype = np.dtype(self.metadata["dtype"])
        self._ids, self._offsets = (
            {side: np.memmap(self.folder / f"{side}.{kind}", dtype, "r") for side in SIDES}
            for kind, dtype in (("ids", dtype), ("offsets", OFFSETS))
        )
        self.source_lengths = np.diff(self._offsets["source"]).astype("int32")
        self.target_lengths = np.diff(self._offsets["target"]).astype("int32")

    @classmethod
    @checked
    def build(
        cls,
        folder: str | os.PathLike[str],
        text: Annotated[
            Iterable[tuple[str, str]],
            Has("a ParallelText, such as the parts of a corpus", "fingerprint"),
        ],
        tokenizer: Annotated[Tokenizer, Has("a Tokenizer", "encode", "fingerprint")],
        verbose: bool = True,
        dropout: Rate = 0.0,
        samples: Count = 1,
        seed: FromZero = 0,
    ) -> TokenStore:
        """Tokenise a parallel text, or open its store if it exists.

        Each store has its own subfolder of `folder`, named after the fingerprints of text, tokenizer and
        format: a changed text gets a new store, and nothing is overwritten. A store is written whole or
        not at all. Pairs are read and written in chunks, so memory does not grow with their number.

        Pairs with an empty side are dropped (`metadata["dropped_empty"]` counts them). Long pairs stay:
        `TokenBatches` decides about them.

        With `dropout`, the store holds the text `samples` times, each time split into different subwords.
        This subword regularisation helps with small corpora. An epoch of `TokenBatches` is then one of
        `samples` parts of a pass over the store.

        Args:
            folder: Folder in which stores are kept; made if absent.
            text: A `ParallelText`, or another iterable of (source, target) pairs of str with `len()` and
                `fingerprint()`.
            tokenizer: The `Tokenizer` for both sides.
            verbose: Whether to show progress after 3 seconds. Defaults to True.
            dropout: Probability of skipping a BPE merge (see `Tokenizer.encode`). For training text only.
                Defaults to 0.
            samples: Number of times that the text is stored with different `dropout`. Defaults to 1.
            seed: Integer seed of the dropout. Defaults to 0.

        Returns:
            A `TokenStore`.

        Raises:
            ValueError: If no pair is left, an existing store is damaged, the tokenizer does not support
                `dropout`, or `samples` is above 1 without it.
            OSError: If `folder` is a file, or cannot be written to.

        Reference: [BPE-dropout (Provilkov et al., 2020)](https://arxiv.org/abs/1910.13267).
        """
        parent = Path(folder)
        if samples > 1 and not dropout:
            raise ValueError(
                "Without `dropout`, all samples of a text are the same. Leave out `samples`, or pass a "
                f"`dropout` such as 0.1. Received: samples={samples}, dropout={dropout!r}"
            )
        sized: Any = text
        sampling: dict[str, Any] = {}
        if dropout:
            sampling = {"dropout": dropout, "samples": samples, "seed": seed}
        wanted = {
            "format_version": STORE.version,
            "text_fingerprint": sized.fingerprint(),
            "tokenizer_fingerprint": tokenizer.fingerprint(),
            **sampling,
        }
        final = cls.path(parent, wanted["text_fingerprint"], tokenizer, **sampling)
        remove_leftovers(parent)
        if not final.exists():
            # This waits for another process that builds the same store.
            with contextlib.suppress(OccupiedPath), atomic_folder(final) as building:
                with Progress(samples * len(sized), "tokenizing", "pairs", verbose) as progress:
                    _write_store(building, text, tokenizer, wanted, progress)
        store = cls(final)
        different = [key for key, value in wanted.items() if store.metadata.get(key) != value]
        if different:
            raise ValueError(
                f"'{final}' holds another store ({', '.join(different)} differ). Move it away."
            )
        return store

    @staticmethod
    def path(
        folder: str | os.PathLike[str],
        text_fingerprint: str,
        tokenizer: Tokenizer,
        dropout: float = 0.0,
        samples: int = 1,
        seed: int = 0,
    ) -> Path:
        """Return the folder in which `build` keeps the store of a text with this fingerprint."""
        name = f"v{STORE.version}-{text_fingerprint[:16]}-{tokenizer.fingerprint()[:16]}"
        if dropout:
            name += f"-dropout{dropout}-samples{samples}-seed{seed}"
        return Path(folder) / name

    @classmethod
    @checked
    def open(cls, folder: str | os.PathLike[str]) -> TokenStore:
        """Open a store by its own folder, `store.folder`, or by the `folder` of `build` if it holds one."""
        folder = Path(folder)
        if not (folder / STORE.manifest).exists() and folder.is_dir():
            stores = sorted(path.parent for path in folder.glob(f"[!.]*/{STORE.manifest}"))
            if len(stores) > 1:
                names = ", ".join(path.name for path in stores)
                raise ValueError(f"'{folder}' holds several token stores; open one of: {names}")
            if stores:
                return cls(stores[0])
        return cls(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the same files into its memory; it gets no copy of them.
        return type(self), (self.folder.absolute(),)

    def __len__(self) -> int:
        return self.metadata["pairs"]

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token of the tokenizer that made the store."""
        return self.metadata["pad_token_id"]

    @property
    def start_token_id(self) -> int:
        """Id of the token that its decoder is fed first."""
        return self.metadata["start_token_id"]

    def source(self, index: int) -> np.ndarray:
        """Ids (S,) of the source sentence of a pair, end token included."""
        return self._sentence("source", index)

    def target(self, index: int) -> np.ndarray:
        """Ids (T,) of the target sentence of a pair, end token included."""
        return self._sentence("target", index)

    def padded(self, side: str, indices: np.ndarray, length: int) -> np.ndarray:
        """Return the sentences of several pairs as one padded array.

        Args:
            side: `"source"` or `"target"`.
            indices: Int array (B,) of pairs; -1 gives a row of padding.
            length: Number of columns, at least the length of the longest sentence.

        Returns:
            An int32 array (B, length), padded with the padding id.

        Raises:
            ValueError: If `length` is too small.
        """
        offsets = self._offsets[check_choice("side", side, SIDES)]
        real = indices >= 0
        starts = np.where(real, offsets[indices], 0)
        lengths = np.where(real, offsets[indices + 1] - starts, 0)
        if len(indices) and lengths.max() > length:
            raise ValueError(
                f"`length` ({length}) is too small for the longest {side}: {lengths.max()} tokens."
            )
        columns = np.arange(length)
        inside = columns < lengths[:, None]
        positions = (starts[:, None] + columns)[inside]
        rows = np.full(inside.shape, self.pad_token_id, "int32")
        rows[inside] = self._ids[side][positions]
        return rows

    def _sentence(self, side: str, index: int) -> np.ndarray:
        if not 0 <= check_integer("index", index) < len(self):
            raise IndexError(f"The store holds pairs 0 to {len(self) - 1}. Received: {index}")
        begin, end = self._offsets[side][index : index + 2]
        return np.array(self._ids[side][begin:end])


def _write_store(
    folder: Path,
    text: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    wanted: dict[str, Any],
    progress: Progress,
) -> None:
    size = max(tokenizer.vocabulary_size, target_size_of(tokenizer))
    dtype = np.dtype("<u2" if size <= 2**16 else "<u4")
    dropped, pairs, tokens = 0, 0, dict.fromkeys(SIDES, 0)
    with contextlib.ExitStack() as stack:
        ids, offsets = (
            {side: stack.enter_context(open(folder / f"{side}.{kind}", "wb")) for side in SIDES}
            for kind in ("ids", "offsets")
        )
        for side in SIDES:
            offsets[side].write(np.zeros(1, OFFSETS).tobytes())
        for position, chunk in _chunks(text, wanted.get("samples", 1)):
            encoded = [
                encode_side(tokenizer, texts, side, **_dropout(wanted, position, column))
                for column, (side, texts) in enumerate(
                    zip(SIDES, zip(*chunk, strict=True), strict=True)
                )
            ]
            kept = [pair for pair in zip(*encoded, strict=True) if all(pair)]
            dropped += len(chunk) - len(kept)
            pairs += len(kept)
            for column, side in enumerate(SIDES):
                end = end_of(tokenizer, side)
                lengths = [len(pair[column]) + len(end) for pair in kept]
                numbers = itertools.chain.from_iterable(
                    part for pair in kept for part in (pair[column], end)
                )
                ids[side].write(np.fromiter(numbers, dtype, sum(lengths)).tobytes())
                ends = np.cumsum([tokens[side], *lengths], dtype=OFFSETS)
                offsets[side].write(ends[1:].tobytes())
                tokens[side] = int(ends[-1])
            progress.add(len(chunk))
            del encoded, kept, numbers  # Freed before the next chunk takes as much memory.
    if not pairs:
        raise ValueError(
            f"No pair of sentences is left of {dropped}: every pair has an empty side. "
            "Check that both files hold text."
        )
    metadata = dict(
        wanted,
        dtype=dtype.str,
        pairs=pairs,
        # Each sample drops the same pairs.
        dropped_empty=dropped // wanted.get("samples", 1),
        source_tokens=tokens["source"],
        target_tokens=tokens["target"],
        vocabulary_size=tokenizer.vocabulary_size,
        target_vocabulary_size=target_size_of(tokenizer),
        # A tokenizer of the user's own need not name these.
        pad_token_id=getattr(tokenizer, "pad_token_id", PAD_TOKEN_ID),
        start_token_id=getattr(tokenizer, "start_token_id", PAD_TOKEN_ID),
    )
    STORE.seal(folder, metadata)


def _chunks(
    text: Iterable[tuple[str, str]], samples: int
) -> Iterator[tuple[tuple[int, int], list[tuple[str, str]]]]:
    """Yield the text in chunks, `samples` times, each with the numbers of its sample and chunk."""
    for sample in range(samples):
        pairs = iter(text)
        for number in itertools.count():
            chunk = list(itertools.islice(pairs, CHUNK_PAIRS))
            if not chunk:
                break
            yield (sample, number), chunk


def _dropout(settings: Mapping[str, Any], position: tuple[int, int], column: int) -> dict[str, Any]:
    """Return the arguments of `Tokenizer.encode` for one side of a chunk, whose position is in the seed."""
    if "dropout" not in settings:
        return {}
    entropy = [settings["seed"], *position, column]
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    return {"dropout": settings["dropout"], "seed": seed}
