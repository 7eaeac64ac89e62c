"""Train a pretrained translation model further, on a domain of your own, and see what it gains and forgets.

    python examples/fine_tune.py hf://Helsinki-NLP/opus-mt-en-de train.en train.de --output-dir tuned \
        --old-domain-files news.en news.de

The model is the folder of a run or of another program's model, or a handle. Line i of one file is the
translation of line i of the other. The run is in one folder; the model to pass on, with a model card, is in
another beside it: `tuned-preset`. If it is stopped, the same command continues it.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

# First: Keras then starts only when it is needed, without TensorFlow's log messages.
import keras_attention_light  # noqa: F401
from keras_attention import ParallelText, corpus_from_files
from keras_attention.data.parallel_text import FilePairs
from keras_attention.recipes.catalog import fine_tuning_recipe


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("model", metavar="MODEL", help="what is trained further")
    add("source_file", type=Path, metavar="SOURCE", help="your text, one sentence per line")
    add("target_file", type=Path, metavar="TARGET", help="its translation")
    pair: Any = {"nargs": 2, "type": Path, "metavar": ("SOURCE", "TARGET")}
    add("--validation-files", **pair, help="(5 %% of your text)")
    add("--test-files", **pair, help="(another 5 %% of your text)")
    add(
        "--old-domain-files", **pair, help="text as MODEL was made for: what does it forget? (none)"
    )
    add("--languages", nargs=2, metavar="CODE", default=("en", "de"), help="such as en pt (en de)")
    add("--minutes", type=float, default=15.0, metavar="X", help="longest time of training (15)")
    add("--freeze", metavar="PART", help="encoder, decoder or embeddings: stays as it is (none)")
    add(
        "--lora",
        type=int,
        metavar="RANK",
        help="train small matrices alone, such as 8 (all weights)",
    )
    add("--output-dir", type=Path, required=True, metavar="FOLDER")
    return parser.parse_args()


def main() -> None:
    """Train, compare, save."""
    given = arguments()

    # The text. Pairs for validation and test are never trained on.
    corpus = corpus_from_files(
        (given.source_file, given.target_file),
        given.validation_files,
        given.test_files,
        name=given.source_file.name,
        source_language=given.languages[0],
        target_language=given.languages[1],
    )
    if given.old_domain_files:
        old = ParallelText("old domain", FilePairs(*given.old_domain_files))
        corpus = dataclasses.replace(corpus, extra={"old_domain": old})

    # Sizes, weights, dropout and tokenizer come from the model; optimizer and learning rate are new. The rate
    # is low: so the model learns the domain and forgets little. It stays at its peak and falls in the last
    # fifth of the time. Training ends early after three epochs without a better validation perplexity. The
    # result is the checkpoint with the best one, or the model as it was if training makes it worse.
    recipe = fine_tuning_recipe(len(corpus.train), given.model)
    config = dataclasses.replace(
        recipe, freeze=given.freeze, lora=given.lora, steps=None, minutes=given.minutes
    )
    if given.lora:  # B begins with zeros, and so moves little at such a rate
        config = dataclasses.replace(config, peak_learning_rate=0.001)

    # These need Keras, which takes seconds to start: wrong arguments were refused before.
    from keras_attention import Translator, train_translation

    # The model is scored before the first update and at the end, on the same sentences.
    report = train_translation(corpus, config, given.output_dir)
    for name, text in (("new domain", report["test"]), ("old domain", report.get("old_domain"))):
        if text is not None:
            print(
                f"{name}: BLEU {text['before']['bleu']:.1f} before, {text['bleu']:.1f} after "
                f"({text['sentences']:,} sentences, p = {text['p_value']:.4f})"
            )

    # All that another person needs to translate with it; `keras-attention preset` does the same.
    preset = given.output_dir.with_name(f"{given.output_dir.name}-preset")
    Translator.from_run(given.output_dir).save_to_preset(preset, overwrite=True)
    print(f"The preset is {preset}")


if __name__ == "__main__":
    main()
