"""Parallel corpora: by name (`load_corpus`) and from the user's own files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from keras_attention.data.corpus import Corpus
from keras_attention.data.demo import load_demo
from keras_attention.data.download import Origin
from keras_attention.data.filters import Filters
from keras_attention.data.held_out import SelectedPairs, found_in, hold_out
from keras_attention.data.multi30k import load_multi30k
from keras_attention.data.parallel_text import (
    ChainedPairs,
    FilePairs,
    Pair,
    ParallelText,
    PathLike,
    TsvPairs,
)
from keras_attention.data.wmt import load_wmt14, load_wmt16
from keras_attention.utils.arguments import FromZero, checked
from keras_attention.utils.checks import check_path
from keras_attention.utils.files import atomic_file


def _check_language(name: str, language: Any) -> str:
    if not isinstance(language, str) or not language or Path(language).name != language:
        raise ValueError(f"`{name}` must be a word such as 'en'. Received: {language!r}")
    return language


Language = Annotated[str, _check_language]


@checked
def load_corpus(
    name: str,
    data_dir: PathLike | None = None,
    source_language: Language = "en",
    target_language: Language = "de",
    *,
    cache_dir: PathLike | None = None,
    base_url: str | None = None,
    filters: Filters | None = None,
) -> Corpus:
    """Load a corpus by name.

    * "demo": generated English-German sentences with word alignments. Comes with the package.
    * "multi30k": 29,000 image captions in English, German and French, in any direction. Downloaded
      once (3 MB), or read from a folder.
    * "wmt14": the paper's corpora, English and German (4.5 million pairs) or French (41 million), in
      either direction. The archives (gigabytes) are downloaded once and their checksums recorded. The
      validation set is newstest2013, the test set newstest2014 (3,003 sentences).
    * "wmt16_en_de": the English-German set that the authors trained on, already split into subwords.

    Args:
        name: "demo", "multi30k", "wmt14" or "wmt16_en_de".
        data_dir: Folder with the files of the corpus, plain or packed. If given, nothing is downloaded.
        source_language, target_language: Direction of the translation. Default to "en" and "de".
        cache_dir: Folder for downloads. Defaults to $KERAS_ATTENTION_CACHE or
            ~/.cache/keras_attention.
        base_url: Mirror to download from.
        filters: `Filters` for the training pairs. By default, "wmt14" and "wmt16_en_de" drop only pairs
            with an empty side, as the authors' code does.

    Returns:
        A `Corpus`, whose parts have been read once to check them.

    Raises:
        ValueError: If the corpus or a language is unknown, or a file is broken.
        FileNotFoundError: If files are missing in `data_dir`.
        ConnectionError: If a download fails.

    >>> corpus = load_corpus("demo")
    >>> corpus.synthetic, len(corpus.train), len(corpus.test)
    (True, 10000, 500)
    """
    if name not in LOADERS:
        raise ValueError(
            f"Unknown corpus. Expected one of {', '.join(LOADERS)}. Received: name={name!r}. "
            "For files of your own use `corpus_from_files`."
        )
    corpus = LOADERS[name](
        (source_language, target_language), Origin(data_dir, cache_dir, base_url)
    )
    return corpus.filtered(filters).check()


@checked
def corpus_from_files(
    train: tuple[PathLike, PathLike] | Mapping[str, tuple[PathLike, PathLike]],
    validation: tuple[PathLike, PathLike] | None = None,
    test: tuple[PathLike, PathLike] | None = None,
    *,
    name: str = "files",
    source_language: Language = "source",
    target_language: Language = "target",
    validation_size: FromZero | None = None,
    test_size: FromZero | None = None,
    filters: Filters | None = None,
) -> Corpus:
    """Make a corpus from UTF-8 text files with one sentence per line: plain, gzip, bzip2, xz or Zstandard.

    If `validation` or `test` is not given, pairs are held out of `train` for it. A hash of each source
    decides which, so the choice depends neither on their order nor on chance. Pairs with one source are held
    out together, so none of these is trained on. Files for `validation` or `test` may share sources with
    `train`; a run's report counts them.

    Args:
        train, validation, test: Pairs of files, (source file, target file). `train` may be a dict of such
            pairs by name: a run can mix these texts with weights.
        name, source_language, target_language: Labels for reports.
        validation_size, test_size: Number of different sources to hold out. Default to 5 %, at most 1,000.
            With a `test_size` of 0 there is no test part.
        filters: `Filters` for the training pairs.

    Returns:
        A `Corpus`, whose parts have been read once to check them.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is not UTF-8, two files differ in their number of lines, there is nothing to
            train on, or each pair of `validation` or `test` stands in `train`.

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> files = os.path.join(folder, "train.en"), os.path.join(folder, "train.de")
    >>> for file, word in zip(files, ("line", "Zeile")):
    ...     with open(file, "w") as stream:
    ...         stream.writelines(f"{word} {i}\\n" for i in range(200))
    >>> corpus = corpus_from_files(files, source_language="en", target_language="de")
    >>> {split: len(text) for split, text in corpus.splits.items()}
    {'train': 180, 'validation': 10, 'test': 10}
    """
    named = {}
    if isinstance(train, Mapping):
        named = {part: _file_pairs(f"train[{part!r}]", files) for part, files in train.items()}
        if not named or not all(isinstance(part, str) and part for part in named):
            raise ValueError(f"`train` must name at least one pair of files. Received: {train!r}")
        read: Iterable[Pair] = ChainedPairs(list(named.values()))
    else:
        read = _file_pairs("train", train)
    languages = (source_language, target_language)
    pairs = {"train": read, **_parts(_file_pairs, {"validation": validation, "test": test})}
    return _own_corpus(name, languages, pairs, validation_size, test_size, filters, named)


@checked
def corpus_from_tsv(
    train: PathLike,
    validation: PathLike | None = None,
    test: PathLike | None = None,
    *,
    name: str = "tsv",
    source_language: Language = "source",
    target_language: Language = "target",
    validation_size: FromZero | None = None,
    test_size: FromZero | None = None,
    filters: Filters | None = None,
    has_languages: bool = False,
) -> Corpus:
    """Corpus from files with two columns, source and target, separated by one tab.

    Lines without text, such as those between documents, are skipped and counted in the description.

    With `has_languages`, a third column names the language of each target, such as "de": the source then
    begins with the tag `<2de>`, which a run's tokenizer keeps whole. So one model learns several languages.

    Other arguments, result and errors are those of `corpus_from_files`, but each part is one file.
    """

    def read(split: str, path: PathLike) -> TsvPairs:
        return TsvPairs(check_path(split, path), has_languages)

    held_out = {"validation": validation, "test": test}
    pairs = {"train": read("train", train), **_parts(read, held_out)}
    languages = (source_language, target_language)
    return _own_corpus(name, languages, pairs, validation_size, test_size, filters)


@checked
def write_corpus(corpus: Corpus, folder: PathLike) -> list[Path]:
    """Write a corpus as text files, one sentence per line: `train.en`, `train.de`, `validation.en`, ...

    Args:
        corpus: The `Corpus` to write.
        folder: Folder to write to; made if absent. Existing files are not overwritten.

    Returns:
        The paths of the files.

    Raises:
        FileExistsError: If one of the files exists already. Nothing is written then.
        ValueError: If both languages have the same name.

    >>> import tempfile
    >>> files = write_corpus(load_corpus("demo"), tempfile.mkdtemp())
    >>> [file.name for file in files]
    ['train.en', 'train.de', 'validation.en', 'validation.de', 'test.en', 'test.de']
    """
    languages = (corpus.source_language, corpus.target_language)
    if languages[0] == languages[1]:
        raise ValueError(
            "`source_language` and `target_language` must differ, because the files are named after "
            f"them. Received: {languages[0]!r} for both"
        )
    files = {
        Path(folder) / f"{split}.{language}": (text, side)
        for split, text in corpus.splits.items()
        for side, language in enumerate(languages)
    }
    there = [str(file) for file in files if file.exists()]
    if there:
        raise FileExistsError(f"Nothing was written, because files exist: {', '.join(there)}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, (text, side) in files.items():
        with atomic_file(file, "w") as stream:
            stream.writelines(f"{pair[side]}\n" for pair in text)
    return list(files)


def _file_pairs(split: str, files: tuple[PathLike, PathLike]) -> FilePairs:
    if not isinstance(files, tuple | list) or len(files) != 2:
        raise ValueError(
            f"`{split}` must be a pair (source file, target file). Received: {files!r}"
        )
    source, target = (check_path(split, path) for path in files)
    pairs = FilePairs(source, target)
    if source.samefile(target):
        raise ValueError(
            f"`{split}` must be two files, a source and its translation. Received: '{source}' for both"
        )
    return pairs


def _parts(
    read: Callable[[str, Any], FilePairs | TsvPairs], files: Mapping[str, Any]
) -> dict[str, Iterable[Pair]]:
    return {split: read(split, names) for split, names in files.items() if names is not None}


def _own_corpus(
    name: str,
    languages: tuple[str, str],
    pairs: Mapping[str, Iterable[Pair]],
    validation_size: int | None,
    test_size: int | None,
    filters: Filters | None,
    named: Mapping[str, FilePairs] = {},
) -> Corpus:
    sizes = {"validation": validation_size, "test": test_size}
    for split, size in sizes.items():
        if split in pairs and size is not None:
            raise ValueError(
                f"`{split}_size` holds pairs out of `train`. Leave it out, because `{split}` is given. "
                f"Received: {split}_size={size}"
            )
    if "validation" not in pairs and validation_size == 0:
        raise ValueError(
            "A validation part is needed: give files, or a `validation_size` above 0. "
            "Received: validation_size=0"
        )
    wanted = {split: size for split, size in sizes.items() if split not in pairs}
    given, pairs = pairs, {**pairs, **hold_out(pairs["train"], wanted)}
    held_out = " and ".join(split for split in wanted if split in pairs)
    own = f"your own text; {held_out} held out of it" if held_out else "your own text"
    texts = {split: ParallelText(f"{name}/{split}", part) for split, part in pairs.items()}
    selected, parts = pairs["train"], {}
    for word, files in named.items():
        own_pairs = selected.of(files) if isinstance(selected, SelectedPairs) else files
        parts[word] = ParallelText(f"{name}/{word}", own_pairs)
    corpus = Corpus(
        name, *languages, False, own,
        train=texts["train"], validation=texts["validation"], test=texts.get("test"), parts=parts,
    ).filtered(filters).check()  # fmt: skip
    symbols = tuple(sorted(_checked_parts(given)))
    # Known once all parts have been read.
    blank = sum(getattr(part, "blank_lines", 0) for part in given.values())
    description = f"{own}; {blank:,} blank lines skipped" if blank else own
    return dataclasses.replace(corpus, description=description, symbols=symbols)


def _checked_parts(given: Mapping[str, Iterable[Pair]]) -> set[str]:
    """Refuse held-out parts that say nothing of the training part; return the tags of that."""
    held = {split: part for split, part in given.items() if split != "train"}
    for split, counts in found_in(given["train"], held, sides=2).items():
        if counts["different"] == counts["trained"]:
            raise ValueError(
                f"`{split}` must not be the text that is trained on: scores on it would mean nothing. Leave "
                f"it out to hold out pairs of `train`. Received: {counts['different']:,} different pairs, "
                "all of which are in `train`, too"
            )
    tags: dict[str, set[str]] = {
        split: getattr(part, "tags", set()) for split, part in given.items()
    }
    for split, found in tags.items():
        if found - tags["train"]:
            raise ValueError(
                f"`{split}` has the tags {', '.join(sorted(found - tags['train']))}, which `train` lacks: a "
                "model cannot learn these languages. Leave them out there, or add pairs to `train`."
            )
    return tags["train"]


LOADERS: dict[str, Callable[[tuple[str, str], Origin], Corpus]] = {
    "demo": load_demo,
    "multi30k": load_multi30k,
    "wmt14": load_wmt14,
    "wmt16_en_de": load_wmt16,
}
