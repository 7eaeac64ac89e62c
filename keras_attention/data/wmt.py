"""The corpora of section 5.1 of the paper: WMT14, and the preprocessed set that its authors used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from keras_attention.data.archives import check_is_archive, extract
from keras_attention.data.corpus import Corpus
from keras_attention.data.download import Origin, advising, check_recorded, download
from keras_attention.data.filters import Filters
from keras_attention.data.parallel_text import ChainedPairs, FilePairs, Pair, ParallelText
from keras_attention.data.text_files import packed_or_plain, unpacked_name

STATMT = "http://www.statmt.org"
LARGEST_ARCHIVE = 1 << 32  # bytes; the largest has 2.3 GB


@dataclasses.dataclass(frozen=True)
class Part:
    """Two files of an archive, one for each language."""

    address: str  # address of the archive, after `STATMT`
    member: str  # name of the files in it, with {language} as a placeholder

    def file(self, language: str) -> str:
        """File name of one side."""
        return self.member.format(language=language).rpartition("/")[2]


# Training text, by the other language than English. The paper says 4.5 and 36 million pairs.
WMT14 = {
    "de": (
        Part("/wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en.{language}"),
        Part("/wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.de-en.{language}"),
        Part("/wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.de-en.{language}"),
    ),
    "fr": (
        Part("/wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.fr-en.{language}"),
        Part("/wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.fr-en.{language}"),
        Part("/wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.fr-en.{language}"),
        Part("/wmt10/training-giga-fren.tar", "giga-fren.release2.fixed.{language}.gz"),
        Part("/wmt13/training-parallel-un.tgz", "un/undoc.2000.fr-en.{language}"),
    ),
}
# Name of the files, other accepted names, and sacrebleu's name of the set.
HELD_OUT = {
    "validation": ("newstest2013", ("validation", "valid", "val", "dev"), "wmt13"),
    "test": ("newstest2014", ("test",), "wmt14/full"),
}
SUBFOLDERS = ("", "training", "train", "dev", "test", "un")
WMT14_DESCRIPTION = "WMT14 translation task, from statmt.org: see there for the terms of each part."

WMT16_ARCHIVE = "wmt16_en_de.tar.gz"
WMT16_URL = "https://drive.google.com/uc?export=download&confirm=t&id=0B_bZck-ksdkpM25jRUN2X2UxMm8"
WMT16_SPLITS = {
    "train": "train.tok.clean.bpe.32000",
    "validation": "newstest2013.tok.bpe.32000",
    "test": "newstest2014.tok.bpe.32000",
}
WMT16_VOCABULARY = "vocab.bpe.32000"
WMT16_DESCRIPTION = (
    "WMT16 English-German as prepared for Britz et al. 2017 and used by the paper's authors: "
    "tokenised by Moses, 1 to 80 words, 32,000 joint merges. Scores on it are of tokenised text."
)


def load_wmt14(languages: tuple[str, str], origin: Origin) -> Corpus:
    """WMT14 English-German or English-French, in either direction; see `load_corpus`."""
    foreign = next((language for language in languages if language != "en"), "en")
    if "en" not in languages or foreign not in WMT14:
        raise ValueError(
            "WMT14 goes between 'en' and one of " + ", ".join(map(repr, WMT14)) + ". "
            f"Received: source_language={languages[0]!r}, target_language={languages[1]!r}"
        )
    parts, folder = WMT14[foreign], origin.folder("wmt14")
    if origin.data_dir is not None:
        train, held_out = _local_wmt14(folder, languages, parts)
    else:
        train, held_out = _downloaded_wmt14(folder, languages, parts, origin.base_url or STATMT)
    label = f"wmt14/{{}}.{'-'.join(languages)}"
    texts = {split: ParallelText(label.format(split), pairs) for split, pairs in held_out.items()}
    return Corpus(
        "wmt14", *languages, False, WMT14_DESCRIPTION,
        train=ParallelText(label.format("train"), train),
        validation=texts["validation"], test=texts["test"],
    ).filtered(Filters())  # fmt: skip


def load_wmt16(languages: tuple[str, str], origin: Origin) -> Corpus:
    """Return the preprocessed WMT16 English-German, split into subwords; see `load_corpus`."""
    if set(languages) != {"en", "de"}:
        raise ValueError(
            "The corpus goes between 'en' and 'de'. "
            f"Received: source_language={languages[0]!r}, target_language={languages[1]!r}"
        )
    names = [f"{stem}.{language}" for stem in WMT16_SPLITS.values() for language in languages]
    names.append(WMT16_VOCABULARY)
    folder = origin.folder("wmt16_en_de")
    if origin.data_dir is None:
        url = WMT16_URL if origin.base_url is None else f"{origin.base_url}/{WMT16_ARCHIVE}"
        with advising(
            f"put {WMT16_ARCHIVE} from {url} into '{folder}', or its files into a folder that you pass as "
            f"`data_dir` (--data-dir): {', '.join(names)}"
        ):
            _fetch_members(folder, url, WMT16_ARCHIVE, {name: folder / name for name in names})
    found = {name: packed_or_plain(folder / name) for name in names}
    missing = [name for name, file in found.items() if file is None]
    if missing:
        raise FileNotFoundError(
            f"Files of {WMT16_ARCHIVE} are missing in '{folder}': "
            f"{', '.join(missing)}. The archive is at {WMT16_URL}"
        )
    texts = {
        split: ParallelText(
            f"wmt16_en_de/{split}.{'-'.join(languages)}",
            FilePairs(*(found[f"{stem}.{language}"] or "" for language in languages)),
        )
        for split, stem in WMT16_SPLITS.items()
    }
    return Corpus(
        "wmt16_en_de", *languages, False, WMT16_DESCRIPTION,
        train=texts["train"], validation=texts["validation"], test=texts["test"],
        vocabulary=found[WMT16_VOCABULARY],
    ).filtered(Filters())  # fmt: skip


def _local_wmt14(
    folder: Path, languages: tuple[str, str], parts: tuple[Part, ...]
) -> tuple[Iterable[Pair], dict[str, FilePairs]]:
    """Return training and held-out pairs from a folder with the user's copies of the files."""
    whole = _pairs(folder, "train.{}", languages)
    found = [_pairs(folder, part.file("{}"), languages) for part in parts]
    train = whole or (ChainedPairs([p for p in found if p]) if all(found) else None)
    held_out = {}
    for split, (name, others, _) in HELD_OUT.items():
        names = [f"{stem}.{{}}" for stem in (name, *others)]
        held_out[split] = next(filter(None, (_pairs(folder, n, languages) for n in names)), None)
    missing = (
        [] if train else [part.file("{}") for part, p in zip(parts, found, strict=True) if not p]
    )
    missing += [f"{HELD_OUT[split][0]}.{{}}" for split, pairs in held_out.items() if not pairs]
    if missing:
        names = [name.format(language) for name in missing for language in languages]
        raise FileNotFoundError(
            f"WMT14 files are missing in '{folder}': {', '.join(names)}; each plain or with .gz at "
            f"the end, there or in {', '.join(SUBFOLDERS[1:])}. One pair of files train.{languages[0]}, "
            f"train.{languages[1]} may stand for all training text, valid.* for newstest2013.*, test.* "
            f"for newstest2014.*.\n{_where_from(parts, languages, STATMT)}"
        )
    return train or (), {split: pairs for split, pairs in held_out.items() if pairs}


def _downloaded_wmt14(
    folder: Path, languages: tuple[str, str], parts: tuple[Part, ...], base_url: str
) -> tuple[ChainedPairs, dict[str, FilePairs]]:
    """Return the same from the public files, after downloading those that are not in `folder`."""
    with advising(
        f"put the archives and the files newstest* into '{folder}', or the text files into a folder that "
        f"you pass as `data_dir` (--data-dir).\n{_where_from(parts, languages, base_url)}"
    ):
        for part in parts:
            members = {
                part.member.format(language=language): folder / part.file(language)
                for language in languages
            }
            archive = part.address.rpartition("/")[2]
            _fetch_members(folder, base_url + part.address, archive, members)
        held_out = {split: _newstest(folder, split, languages) for split in HELD_OUT}
    files = [[folder / part.file(language) for language in languages] for part in parts]
    return ChainedPairs([FilePairs(*pair) for pair in files]), held_out


def _fetch_members(folder: Path, url: str, archive: str, members: dict[str, Path]) -> None:
    """Download an archive and extract the members that do not exist yet."""
    for path in members.values():
        if path.exists():
            check_recorded(path, f"Delete '{path}' to read it from {archive} again")
    absent = {member: path for member, path in members.items() if not path.exists()}
    if absent:
        extract(download(url, folder / archive, check_is_archive, LARGEST_ARCHIVE), absent)


def _newstest(folder: Path, split: str, languages: tuple[str, str]) -> FilePairs:
    """Return a test set from `folder`, or else from sacrebleu, which knows its checksum."""
    name, _, set_name = HELD_OUT[split]
    pairs = _pairs(folder, f"{name}.{{}}", languages)
    if pairs is not None:
        return pairs
    import sacrebleu

    direction = "-".join(languages)
    try:
        source = sacrebleu.get_source_file(set_name, direction)
        (target,) = sacrebleu.get_reference_files(set_name, direction)
    except (Exception, SystemExit) as error:  # sacrebleu ends the program on a wrong checksum
        raise ConnectionError(f"sacrebleu could not get {set_name} {direction}: {error}") from error
    return FilePairs(source, target)


def _pairs(folder: Path, name: str, languages: tuple[str, str]) -> FilePairs | None:
    """Return the two files of that name, from the folder or one of `SUBFOLDERS`; None if missing."""
    for subfolder in SUBFOLDERS:
        named = [folder / subfolder / name.format(language) for language in languages]
        files = [packed_or_plain(path.with_name(unpacked_name(path.name))) for path in named]
        if files[0] is not None and files[1] is not None:
            return FilePairs(files[0], files[1])
    return None


def _where_from(parts: tuple[Part, ...], languages: tuple[str, str], base_url: str) -> str:
    """Return the addresses of all files, one per line."""
    lines = [
        f"  {base_url}{part.address}: {', '.join(map(part.file, languages))}" for part in parts
    ]
    direction = "-".join(languages)
    for name, _, set_name in HELD_OUT.values():
        files = ", ".join(f"{name}.{language}" for language in languages)
        lines.append(f"  sacrebleu -t {set_name} -l {direction} --echo src (or ref): {files}")
    return "\n".join(lines)
