"""Treebanks: by name (`load_treebank`) and from the user's own files."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_attention import Corpus, ParallelText
from keras_attention.data.download import Origin, advising, download
from keras_attention.data.parallel_text import ChainedPairs, PathLike
from keras_attention.data.text_files import existing_file, is_pipe
from keras_attention.utils.progress import with_progress
from parsing.trees import escape_word, linearize, read_trees

if TYPE_CHECKING:
    from nltk import Tree

CRAFT_COMMIT = "2abe82b8bb8089448b84937d5f61d8c218011322"
CRAFT_FOLDER = "structural-annotation/treebank/penn"
CRAFT_URL = f"https://raw.githubusercontent.com/UCDenver-ccp/CRAFT/{CRAFT_COMMIT}/{CRAFT_FOLDER}"
CRAFT_DESCRIPTION = (
    "CRAFT 5: the trees of 97 biomedical articles, 60 to train, 7 to validate, 30 to test (Verspoor "
    "et al. 2012; CC BY 3.0)."
)
SAMPLE_ARCHIVE = "treebank.zip"
SAMPLE_URL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora"
SAMPLE_SHA256 = "9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399"
SAMPLE_FILES = range(1, 200)
SAMPLE_DESCRIPTION = (
    "The sample of the Penn Treebank's Wall Street Journal that nltk distributes: 3,914 trees of 199 "
    "articles; every tenth article is in the test part (non-commercial use)."
)
# Section 6.3 of the paper, and the usual split.
PENN_SECTIONS = {"train": range(2, 22), "validation": range(22, 23), "test": range(23, 24)}
PENN_FOLDERS = ("", "wsj", "parsed/mrg/wsj", "mrg/wsj", "combined/wsj", "combined")
PENN_DESCRIPTION = (
    "Penn Treebank, Wall Street Journal: sections 2 to 21 to train, 22 to validate, 23 to test."
)
# What a damaged zip archive raises, and one that is encrypted or packed in an unknown way.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(NotImplementedError, RuntimeError, ValueError),
)
TREE_SUFFIXES = (".mrg", ".tree", ".parse")


def craft_sums() -> dict[str, dict[str, str]]:
    """Return the sha256 of CRAFT's articles, by the parts of its craft-ids-*.txt."""
    parts: dict[str, dict[str, str]] = {"train": {}, "validation": {}, "test": {}}
    for line in Path(__file__).with_name("craft.sha256").read_text("utf-8").splitlines():
        sha256, file = line.split()
        parts[file.partition("/")[0]][Path(file).stem] = sha256
    return parts


class Trees:
    """The trees of some files, read again on each pass."""

    def __init__(self, name: str, files: Sequence[Path | zipfile.Path]) -> None:
        self.name = name
        self._files = files

    def __repr__(self) -> str:
        return f"Trees('{self.name}')"

    def __iter__(self) -> Iterator[Tree]:
        """Yield the trees, stripped by `strip_tree`."""
        for file in self._files:
            with _naming(file):
                text = file.read_text(encoding="utf-8")
            yield from read_trees(text, f"'{file}'", strip=True)


@dataclasses.dataclass(frozen=True)
class Treebank:
    """Trees for training, validating and testing a parser.

    Attributes:
        name: Name of the treebank, such as "craft".
        description: Origin and terms of use.
        train, validation, test: The parts, each a `Trees`.
        silver: Trees of a parser, to train on beside those of `train`; None for none.
    """

    name: str
    description: str
    train: Trees
    validation: Trees
    test: Trees
    silver: Trees | None = None

    @property
    def parts(self) -> dict[str, Trees]:
        """The parts by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def corpus(self, leaves: str = "tags") -> Corpus:
        """Return a corpus that "translates" sentences into trees as `linearize` writes them.

        Every tree is read once, to find broken ones now. With silver trees, these and the others are parts
        of the training text, `gold` and `silver`, which a run can mix with weights.

        Args:
            leaves: What is written for each word: `"tags"`, `"XX"` or `"words"`. Defaults to `"tags"`.
        """
        train, validation, test = (_parallel_text(trees, leaves) for trees in self.parts.values())
        about = (self.name, "words", "tree", False, self.description)
        if self.silver is None:
            return Corpus(*about, train, validation, test)
        parts = {"gold": train, "silver": _parallel_text(self.silver, leaves)}
        both = ParallelText(f"{train.name}+silver", ChainedPairs(list(parts.values())))
        return Corpus(*about, both, validation, test, parts=parts)

    def with_silver(self, paths: Sequence[PathLike]) -> Treebank:
        """Return this treebank with silver trees of files or folders, as `treebank_from_files` takes."""
        return dataclasses.replace(
            self, silver=Trees(f"{self.name}/silver", _tree_files("silver", paths))
        )


def load_treebank(
    name: str,
    data_dir: PathLike | None = None,
    *,
    cache_dir: PathLike | None = None,
    base_url: str | None = None,
) -> Treebank:
    """Load a treebank by name.

    * "craft": 30,830 trees of biomedical articles, free to use. Downloaded once (12 MB).
    * "wsj_sample": 3,914 trees of the Wall Street Journal, as nltk distributes them. Downloaded once
      (1.7 MB), or read from a folder with `treebank.zip`, or with `combined/wsj_0001.mrg`, ...
    * "penn": the whole Penn Treebank, the paper's corpus, which the LDC sells. Read from a folder with
      the sections `02` to `23`.

    Args:
        name: "craft", "wsj_sample" or "penn".
        data_dir: Folder with the files of the treebank. If given, nothing is downloaded.
        cache_dir: Folder for downloads. Defaults to $KERAS_ATTENTION_CACHE or
            ~/.cache/keras_attention.
        base_url: Mirror to download from.

    Returns:
        Treebank. Its files are read when they are needed.

    Raises:
        ValueError: If the name is unknown, "penn" has no `data_dir`, or a downloaded file was changed.
        FileNotFoundError: If files are missing in `data_dir`.
        ConnectionError: If a download fails.
    """
    if name not in LOADERS:
        raise ValueError(
            f"Unknown treebank. Expected one of {', '.join(LOADERS)}. Received: name={name!r}. "
            "For files of your own use `treebank_from_files`."
        )
    return LOADERS[name](Origin(data_dir, cache_dir, base_url))


def treebank_from_files(
    train: Sequence[PathLike],
    validation: Sequence[PathLike],
    test: Sequence[PathLike],
    *,
    name: str = "files",
) -> Treebank:
    """Make a treebank from UTF-8 files of Penn-style trees.

    Args:
        train, validation, test: Lists of files, or of folders with .mrg, .tree or .parse files.
        name: Label for reports. Defaults to "files".

    Raises:
        FileNotFoundError: If a file is missing, or a folder has no such files.
        ValueError: If a part is a single path instead of a list.

    >>> import os, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "all.mrg")
    >>> with open(file, "w") as stream:
    ...     _ = stream.write("( (S (NP-SBJ (PRP It)) (VP (VBZ rains))) )")
    >>> list(treebank_from_files([file], [file], [file]).corpus().train)
    [('It rains', '(S (NP PRP )NP (VP VBZ )VP )S')]
    """
    parts = {"train": train, "validation": validation, "test": test}
    return _treebank(name, "Own files.", {p: _tree_files(p, paths) for p, paths in parts.items()})


def _tree_files(part: str, paths: Sequence[PathLike]) -> list[Path]:
    """Return the tree files that paths name, themselves or by their folder."""
    if isinstance(paths, str | Path):
        raise ValueError(f"`{part}` must be a list of files. Received: {part}={paths!r}")
    files: list[Path] = []
    for path in map(Path, paths):
        is_one = path.is_file() or is_pipe(path)
        found = [existing_file(path)] if is_one else _files_below(path)
        if not found:
            raise FileNotFoundError(
                f"`{part}` must hold files, or folders of {', '.join(TREE_SUFFIXES)} files. Received: "
                f"'{path}'"
            )
        files += found
    return files


@contextlib.contextmanager
def _naming(file: Path | zipfile.Path) -> Iterator[None]:
    """Name a file that cannot be read, in place of the archive's or the decoder's own error."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"'{file}' is not UTF-8: {error}.") from error
    except DAMAGED as error:
        raise ValueError(f"'{file}' is damaged: {error}. Put a whole copy in its place.") from error


def _treebank(
    name: str, description: str, files: Mapping[str, Sequence[Path | zipfile.Path]]
) -> Treebank:
    trees = {part: Trees(f"{name}/{part}", paths) for part, paths in files.items()}
    return Treebank(name, description, **trees)


def _parallel_text(trees: Trees, leaves: str) -> ParallelText:
    linearized = (linearize(tree, leaves) for tree in trees)
    return ParallelText(
        trees.name,
        [(" ".join(map(escape_word, words)), " ".join(symbols)) for words, symbols in linearized],
    )


def _load_craft(origin: Origin) -> Treebank:
    folder = origin.folder("craft")
    if origin.data_dir is None:
        _download_craft(folder, origin.base_url or CRAFT_URL)
    elif (folder / CRAFT_FOLDER).is_dir():
        folder = folder / CRAFT_FOLDER
    files = {
        part: [folder / f"{article}.tree" for article in articles]
        for part, articles in craft_sums().items()
    }
    missing = [path.name for path in itertools.chain(*files.values()) if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} files of CRAFT are missing in '{folder}', such as {missing[0]}. They are "
            f"at https://github.com/UCDenver-ccp/CRAFT, in {CRAFT_FOLDER}; without `data_dir` they are "
            "downloaded."
        )
    return _treebank("craft", CRAFT_DESCRIPTION, files)


def _download_craft(folder: Path, base_url: str) -> None:
    articles = [item for part in craft_sums().values() for item in part.items()]
    advice = (
        f"put the .tree files from {base_url} into '{folder}', or into a folder that you pass as "
        "`data_dir` (--data-dir)."
    )
    shown = len(articles), "downloading the trees of CRAFT", "articles"
    with advising(advice):
        for article, sha256 in with_progress(articles, *shown):
            file = f"{article}.tree"
            download(f"{base_url}/{file}", folder / file, sha256)


def _load_sample(origin: Origin) -> Treebank:
    """Load nltk's sample. Each article is in one part, so no test article is trained on."""
    folder = origin.folder("wsj_sample")
    archive = folder / SAMPLE_ARCHIVE
    if origin.data_dir is None:
        with advising(
            f"put {SAMPLE_ARCHIVE} into '{folder}', or pass the folder of nltk's treebank as `data_dir` "
            "(--data-dir)."
        ):
            url = f"{origin.base_url or SAMPLE_URL}/{SAMPLE_ARCHIVE}"
            download(url, archive, SAMPLE_SHA256)
    below: Path | zipfile.Path = folder
    if archive.is_file():
        with _naming(archive):
            below = zipfile.Path(archive, "treebank/")
    if (below / "combined").is_dir():
        below = below / "combined"
    found = {number: below / f"wsj_{number:04}.mrg" for number in SAMPLE_FILES}
    missing = [str(path) for path in found.values() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} files of nltk's treebank are missing, such as '{missing[0]}'. Pass the "
            f"folder that holds `combined`, or {SAMPLE_ARCHIVE} from {SAMPLE_URL}; without `data_dir` it "
            "is downloaded."
        )
    part_of = {0: "test", 5: "validation"}  # by the last digit of the article
    files: dict[str, list[Path | zipfile.Path]] = {"train": [], "validation": [], "test": []}
    for number, path in found.items():
        files[part_of.get(number % 10, "train")].append(path)
    return _treebank("wsj_sample", SAMPLE_DESCRIPTION, files)


def _load_penn(origin: Origin) -> Treebank:
    if origin.data_dir is None:
        raise ValueError(
            "The Penn Treebank cannot be downloaded: it is LDC99T42, from the LDC. Name the folder of "
            "its Wall Street Journal, with the sections 02 to 23. Received: data_dir=None"
        )
    data_dir = Path(origin.data_dir)
    folder = next(
        (data_dir / sub for sub in PENN_FOLDERS if (data_dir / sub / "02").is_dir()), data_dir
    )
    files: dict[str, list[Path]] = {}
    missing = []
    for part, sections in PENN_SECTIONS.items():
        found = {number: _files_below(folder / f"{number:02}") for number in sections}
        missing += [f"{number:02}" for number, paths in found.items() if not paths]
        files[part] = list(itertools.chain(*found.values()))
    if missing:
        raise FileNotFoundError(
            f"Sections of the Penn Treebank are missing in '{folder}': {', '.join(missing)}. Expected: "
            "folders 02 to 23 with .mrg files, there or in " + ", ".join(PENN_FOLDERS[1:]) + "."
        )
    return _treebank("penn", PENN_DESCRIPTION, files)


def _files_below(folder: Path) -> list[Path]:
    """Return the tree files in a folder and its subfolders, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in TREE_SUFFIXES)


LOADERS: dict[str, Callable[[Origin], Treebank]] = {
    "craft": _load_craft,
    "wsj_sample": _load_sample,
    "penn": _load_penn,
}
