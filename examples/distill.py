"""Train a small model on the translations of a large one, its teacher (Kim and Rush 2016).

    python examples/distill.py TEACHER train.en train.de --preset small --num-layers 6 2 --output-dir STUDENT

The teacher is the folder of a finished run, and the text is the one it was trained on: the same pairs are
held out again. Of the teacher's n best translations of a source, the student learns the one with the best
sentence BLEU against the reference. It has the teacher's tokenizer. If it is stopped, the same command
continues it: `STUDENT-text/` keeps what the teacher has translated.
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention import Corpus, ParallelText, Tokenizer, corpus_from_files
from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.text_files import read_lines
from keras_attention.recipes.catalog import recipe_for
from keras_attention.utils.files import atomic_file
from keras_attention.utils.progress import with_progress
from keras_attention.utils.run_folder import RunFolder

KEPT = ("vocabulary_size", "tokenizer_algorithm", "symbols", "source_prefix")


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("teacher", type=Path, metavar="TEACHER", help="the folder of a finished run")
    add("source_file", type=Path, metavar="SOURCE", help="the text that it was trained on")
    add("target_file", type=Path, metavar="TARGET", help="its translation")
    add("--output-dir", type=Path, required=True, metavar="STUDENT")
    add("--n-best", type=int, default=4, metavar="N", help="translations to choose from (4)")
    add("--preset", metavar="NAME", help="the student's size (what `train` takes for this text)")
    add("--num-layers", type=int, nargs=2, metavar="N", help="of its two stacks (the preset's)")
    add("--steps", type=int, metavar="N", help="updates (what `train` takes for this text)")
    return parser.parse_args()


def closest(hypotheses: Sequence[str], reference: str, language: str | None = None) -> int:
    """Return which hypothesis has the best sentence BLEU; the first of those that are equally good.

    >>> closest(["a small cat", "a small dog runs", "a small dog ran"], "the small dog runs")
    1
    """
    from sacrebleu import sentence_bleu

    from keras_attention.evaluation.bleu import bleu_tokenizer

    wanted, cut = [normalize(reference)], bleu_tokenizer(language)
    scores = [sentence_bleu(normalize(one), wanted, tokenize=cut).score for one in hypotheses]
    return scores.index(max(scores))


def distilled(corpus: Corpus, teacher: Path, folder: Path, n_best: int) -> Corpus:
    """Return the corpus with the teacher's translations as the targets of its training part."""
    from keras_attention.recipes import translate_corpus

    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "source.txt", folder / "target.txt"
    if not source.exists():
        with atomic_file(source, "w") as file:
            file.writelines(f"{line}\n" for line in corpus.train.sources())
    search = {"n_best": n_best, "beam_size": n_best, "as_json": True}
    (found,) = translate_corpus(teacher, [source], folder / "n_best", **search)
    pairs = zip(read_lines(found), corpus.train.targets(), strict=True)
    with atomic_file(target, "w") as file:
        shown = len(corpus.train), "choosing translations", "sentences"
        for line, reference in with_progress(pairs, *shown):
            texts = [one["text"] for one in json.loads(line)["translations"]]
            file.write(f"{texts[closest(texts, reference, corpus.target_language)]}\n")
    text = ParallelText(f"{corpus.name}, distilled", FilePairs(source, target))
    return dataclasses.replace(corpus, name=f"{corpus.name}-distilled", train=text, parts={})


def main() -> None:
    """Translate, choose, train."""
    given = arguments()
    there = RunFolder(given.teacher).settings(("languages",))
    languages = dict(zip(("source_language", "target_language"), there["languages"], strict=True))
    corpus = corpus_from_files((given.source_file, given.target_file), **languages)
    if corpus.test is not None and there.get("test_fingerprint") != corpus.test.fingerprint():
        raise SystemExit(
            f"'{given.teacher}' was trained on another text, or on another part of it."
        )
    asked = {name: value for name in ("preset", "steps") if (value := getattr(given, name))}
    asked |= {name: there[name] for name in KEPT if name in there}
    if given.num_layers:
        asked["model_arguments"] = {"num_layers": tuple(given.num_layers)}
    config = dataclasses.replace(recipe_for(len(corpus.train)), **asked)

    from keras_attention.recipes.order import complete
    from keras_attention.recipes.run import Run

    class Student(Run):
        """A run whose tokenizer is its teacher's."""

        @functools.cached_property
        def tokenizer(self) -> Tokenizer:
            own = self.folder.tokenizer
            if not Tokenizer.is_saved_in(own):
                Tokenizer.load(given.teacher / "tokenizer").save(own)
            return Tokenizer.load(own)

    text = given.output_dir.with_name(f"{given.output_dir.name}-text")
    corpus = distilled(corpus, given.teacher, text, given.n_best)
    complete(Student(corpus, config, given.output_dir))
    print(f"Compare: keras-attention evaluate {given.teacher} {given.output_dir}")


if __name__ == "__main__":
    main()
