"""The options that choose the text of a run."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.data.filters import Filters
from keras_attention.data.model_card import UNNAMED
from keras_attention.data.parallel_text import FilePairs, ParallelText
from keras_attention.data.text_files import existing_file, language_of_file, unpacked_name

if TYPE_CHECKING:
    from keras_attention.data.corpora import Corpus

OWN_FILES = "files"
OLD_DOMAIN = "old_domain"  # the extra test set that says what a pretrained model forgets
PATHS = ("data_dir", "source_file", "target_file", "tsv")
PAIRS = ("validation_files", "test_files", "old_domain_files")


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The text of a run: a corpus by name, or your own files.

    With your own files, 5 % of the pairs (at most 1,000) are held out for validation and as many for
    the test, unless you give files for these.

    Attributes:
        corpus: A corpus by name: demo, multi30k, wmt14 or wmt16_en_de.
        data_dir: Folder with the corpus' files; without it they are downloaded.
        source_language: Language code of the source. Without it the ending of your file says it, as in
            train.en.
        target_language: Language code of the target, which chooses how BLEU cuts words. Without it the ending
            of your file, as in train.de, or the tags of --tsv-languages say it.
        source_file: Your own text, one sentence per line, plain, gzip, bzip2, xz or Zstandard.
        target_file: Its translation, line by line.
        tsv: Your own pairs in one file, on each line source, tab, target.
        tsv_languages: Whether --tsv has a third column with the language of the target, such as de. The
            source then begins with the tag <2de>.
        parts: Your own text in several parts, to be mixed by --mixture: for each part its name, the source
            file and the target file, one after the other.
        validation_files: Source and target file of the validation set.
        test_files: Source and target file of the test set.
        old_domain_files: Source and target file of text as the pretrained model was made for. The report then
            says what it has forgotten.
        max_words: Training pairs with more words on a side are left out.
        max_ratio: Training pairs are left out if one side has more than this many times the words of the
            other.
        drop_duplicates: Whether to keep only the first of equal training pairs.
    """

    corpus: str | None = None
    data_dir: Path | None = None
    source_language: str | None = None
    target_language: str | None = None
    source_file: Path | None = None
    target_file: Path | None = None
    tsv: Path | None = None
    tsv_languages: bool = False
    parts: tuple[str, ...] = ()
    validation_files: tuple[Path, Path] | None = None
    test_files: tuple[Path, Path] | None = None
    old_domain_files: tuple[Path, Path] | None = None
    max_words: int | None = None
    max_ratio: float | None = None
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        self._filters()  # Refuses what is out of range.
        if (self.source_file is None) != (self.target_file is None):
            raise ValueError(
                "--source-file and --target-file belong together: line i of one is the translation "
                f"of line i of the other. Received: --source-file {self.source_file}, --target-file "
                f"{self.target_file}"
            )
        if self.tsv_languages and self.tsv is None:
            raise ValueError("--tsv-languages needs --tsv, the file with three columns.")
        if sum(map(bool, (self.tsv, self.source_file, self.parts))) > 1:
            raise ValueError(
                "Give --tsv, or --source-file and --target-file, or --parts; only one."
            )
        if len(self.parts) % 3 or len({*self.parts[::3]}) < len(self.parts) // 3:
            raise ValueError(
                "--parts needs three words for each part: a name that no other has, its source file and its "
                f"target file. Received: {' '.join(self.parts)}"
            )
        if self.is_own and (self.corpus is not None or self.data_dir is not None):
            option = "--corpus" if self.corpus is not None else "--data-dir"
            raise ValueError(f"Give {option} or your own files, not both.")
        if not self.is_own and (self.validation_files or self.test_files):
            raise ValueError(
                "--validation-files and --test-files need your own training files: a named corpus has its "
                "own validation and test sets."
            )
        self._check_files()
        if self.is_own:
            self._set_languages()

    @property
    def is_own(self) -> bool:
        """Whether the text is the user's own."""
        return self.tsv is not None or self.source_file is not None or bool(self.parts)

    def _set_languages(self) -> None:
        """Take languages that are not named from the endings of the files; refuse an unknown target."""
        endings = self.parts[1:3] or (self.source_file, self.target_file)
        for name, file in zip(("source_language", "target_language"), endings, strict=True):
            if getattr(self, name) is None and file is not None:
                object.__setattr__(self, name, language_of_file(file))
        if self.source_language is None:
            object.__setattr__(self, "source_language", UNNAMED[0])
        if self.target_language is None and not self.tsv_languages:
            raise ValueError(
                f"The language of the target is not known: '{endings[1] or self.tsv}' does not end with a "
                "code, as train.de does. BLEU needs it: give --target-language, such as de."
            )

    @property
    def files(self) -> list[Path]:
        """All files of the user's own."""
        pairs = [(self.source_file, self.target_file), *(getattr(self, name) for name in PAIRS)]
        given = [file for pair in pairs if pair is not None for file in pair]
        given += [Path(word) for i, word in enumerate(self.parts) if i % 3]
        return [file for file in [*given, self.tsv] if file is not None]

    def _check_files(self) -> None:
        """Refuse missing files and those that are given twice; pipes are read now, as it goes only once."""
        for name in (*PATHS[1:], *PAIRS):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, name, tuple(map(existing_file, value)))
            elif value is not None:
                object.__setattr__(self, name, existing_file(value))
        parts = (str(existing_file(each)) if i % 3 else each for i, each in enumerate(self.parts))
        object.__setattr__(self, "parts", tuple(parts))
        for i, file in enumerate(self.files):
            for other in self.files[:i]:
                if file.samefile(other):
                    raise ValueError(
                        f"'{file}' is given twice: training, validation and test need different texts, and "
                        "source and target different files."
                    )

    def _filters(self) -> Filters | None:
        if self.max_words is None and self.max_ratio is None and not self.drop_duplicates:
            return None
        return Filters(self.max_words, self.max_ratio, self.drop_duplicates)

    def load(self, default: str = "demo") -> "Corpus":
        """Read the text: that of the default corpus, if nothing is said."""
        corpus = self._load(default)
        if self.old_domain_files is None:
            return corpus
        text = ParallelText(OLD_DOMAIN, FilePairs(*self.old_domain_files))
        return dataclasses.replace(corpus, extra={**corpus.extra, OLD_DOMAIN: text}).check()

    def _load(self, default: str) -> "Corpus":
        from keras_attention.data.corpora import corpus_from_files, corpus_from_tsv, load_corpus

        languages: dict[str, Any] = {
            "source_language": self.source_language,
            "target_language": self.target_language,
        }
        languages = {name: language for name, language in languages.items() if language is not None}
        languages["filters"] = self._filters()
        held_out: dict[str, Any] = {"validation": self.validation_files, "test": self.test_files}
        if self.tsv is not None:
            if any(held_out.values()):
                raise ValueError(
                    "--validation-files and --test-files need --source-file and --target-file, not --tsv."
                )
            corpus = corpus_from_tsv(
                self.tsv, name=_name_of(self.tsv), has_languages=self.tsv_languages, **languages
            )
            if self.target_language is not None:
                return corpus
            tags = (symbol.removeprefix("<2").removesuffix(">") for symbol in corpus.symbols)
            return dataclasses.replace(corpus, target_language="+".join(tags))
        if self.parts:
            words = self.parts
            named = dict(zip(words[::3], zip(words[1::3], words[2::3], strict=True), strict=True))
            return corpus_from_files(named, **held_out, name="-".join(named), **languages)
        if self.source_file is not None and self.target_file is not None:
            files = (self.source_file, self.target_file)
            return corpus_from_files(
                files, **held_out, name=_name_of(self.source_file), **languages
            )
        return load_corpus(self.corpus or default, data_dir=self.data_dir, **languages)


def _name_of(file: Path) -> str:
    """Return the name of a corpus, from that of its file."""
    return Path(unpacked_name(file.name)).stem
