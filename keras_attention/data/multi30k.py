"""Multi30K task 1: image captions in English, German and French."""

from __future__ import annotations

from pathlib import Path

from keras_attention.data.corpus import Corpus
from keras_attention.data.download import Origin, advising, download
from keras_attention.data.parallel_text import FilePairs, ParallelText
from keras_attention.data.text_files import packed_or_plain

MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d/data/task1/raw"
MULTI30K_LANGUAGES = ("en", "de", "fr")
MULTI30K_SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr")
MULTI30K_SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
}
MULTI30K_DESCRIPTION = (
    "Multi30K task 1: image captions and their translations (Elliott et al. 2016; French: Elliott "
    "et al. 2017). For non-commercial research."
)


def load_multi30k(languages: tuple[str, str], origin: Origin) -> Corpus:
    """Return the corpus in one direction, from a folder or downloaded; see `load_corpus`."""
    if not set(languages) <= set(MULTI30K_LANGUAGES) or languages[0] == languages[1]:
        raise ValueError(
            f"Multi30K has the languages {', '.join(MULTI30K_LANGUAGES)}; choose two of them. "
            f"Received: source_language={languages[0]!r}, target_language={languages[1]!r}"
        )
    folder = origin.folder("multi30k")
    if origin.data_dir is None:
        _download_multi30k(folder, languages, origin.base_url or MULTI30K_URL)
    texts = _multi30k_texts(folder, languages)
    return Corpus(
        "multi30k", *languages, False, MULTI30K_DESCRIPTION,
        train=texts.pop("train"), validation=texts.pop("val"), test=texts.pop("test_2016_flickr"),
        extra=texts,
    )  # fmt: skip


def _download_multi30k(folder: Path, languages: tuple[str, str], base_url: str) -> None:
    files = [f"{split}.{language}.gz" for split in MULTI30K_SPLITS for language in languages]
    for file in files:
        missing = [file for file in files if not (folder / file).exists()]
        with advising(
            f"put these files from {base_url} into '{folder}', or into a folder that you pass as "
            f"`data_dir` (--data-dir): {', '.join(missing)}"
        ):
            download(f"{base_url}/{file}", folder / file, MULTI30K_SHA256[file])


def _multi30k_texts(folder: Path, languages: tuple[str, str]) -> dict[str, ParallelText]:
    """Return the parts of the corpus in the folder; only the 2017 test set may be missing."""
    texts, missing = {}, []
    for split in MULTI30K_SPLITS:
        names = [f"{split}.{language}" for language in languages]
        files = [file for name in names if (file := packed_or_plain(folder / name))]
        if len(files) == 2:
            label = f"multi30k/{split}.{'-'.join(languages)}"
            texts[split] = ParallelText(label, FilePairs(*files))
        elif split != "test_2017_flickr":
            missing += [name for name in names if not packed_or_plain(folder / name)]
    if missing:
        raise FileNotFoundError(
            f"Multi30K files are missing in '{folder}': {', '.join(missing)}, each plain or with "
            f".gz at the end. They are at {MULTI30K_URL}; without `data_dir` they are downloaded."
        )
    return texts
