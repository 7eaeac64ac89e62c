"""Section 7's aim "making generation less sequential": greedy search that verifies drafts.

A draft proposes the next k tokens: those that are likely behind the last ones (n-grams of a text), weighted
by what the source suggests (a lexicon). The model reads all of them in one pass. Those that it would have
chosen itself are accepted, and so is its own next token, so the output is that of greedy search, in fewer
passes (Stern et al. 2018, "Blockwise Parallel Decoding"). Passes are counted; no time is measured, for each
pass reads the whole prefix again.

Without arguments, the model demo_en_de translates the demo corpus' test sentences (synthetic, held out), and
the draft learns from its training pairs, in about a minute.

What to expect, written before the first run: no sentence differs from greedy search, and a pass makes 1.5 to
2.5 tokens: the demo's grammar is regular, but its test combines words that never occur together in training.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np

from keras_attention import load_corpus
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.text_files import read_lines
from keras_attention.utils.sides import encode_side, end_of, target_size_of

DEMO = "demo_en_de"
MOST_PAIRS = 50_000  # The draft learns from the first ones.
ORDER = 4  # tokens of the longest n-grams
ITERATIONS = 3
PRIOR_SHARE = 0.1  # how much of a token's probability, given the source, is its share of all text
ROWS = 128  # sentences in a batch
# Source ids, output ids so far, k -> at most k tokens that may follow.
Propose = Callable[[Sequence[int], Sequence[int], int], Sequence[int]]


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    made = common.new_parser(__doc__, __file__, "--sentences 40")
    add = made.add_argument
    add("--model", metavar="MODEL", default=DEMO, help=f"a run or a preset ({DEMO})")
    add("--source-file", type=Path, metavar="FILE", help="what to translate (the demo's test)")
    told = "text or translations from which the draft learns (the demo's training pairs)"
    add("--pairs", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help=told)
    add("--sentences", type=common.at_least(1), metavar="N", help="at most so many (all)")
    add("--lookahead", type=common.at_least(1), metavar="K", default=3, help="tokens a draft (3)")
    return made


def main(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Translate with drafts, compare with greedy search, and count passes."""
    if options.model != DEMO and None in (options.source_file, options.pairs):
        raise ValueError(
            f"--model {options.model} needs --source-file and --pairs: the demo's text is for {DEMO} only."
        )
    demo = load_corpus("demo")
    assert demo.test is not None
    lines = demo.test.sources() if options.source_file is None else read_lines(options.source_file)
    texts = list(itertools.islice(filter(str.strip, lines), options.sentences))
    text = demo.train if options.pairs is None else FilePairs(*options.pairs)
    pairs = list(itertools.islice(text, MOST_PAIRS))
    if not texts or not pairs:
        raise ValueError("--source-file and --pairs must hold at least one line of text.")
    asked = {name: str(value) for name, value in vars(options).items() if name != "output_dir"}
    results = common.Results(folder, asked)
    common.start_keras()
    import keras

    from keras_attention.cli.models import keras_translator

    # Numba's engine would first compile for a minute or two.
    engine = {"engine": keras.backend.backend(), "precision": "float32"}
    translator = keras_translator(options.model, beam_size=1, **engine)
    with results.claimed():
        greedy = [best[0] for best in translator.translate(texts)]
        draft = Draft.learn(translator.tokenizer, pairs)
        found, passes = drafted_search(translator, texts, draft.propose, options.lookahead)
        report = {
            "sentences": len(texts),
            "sentences that differ from greedy search": sum(
                tokens != list(best.token_ids) for tokens, best in zip(found, greedy, strict=True)
            ),
            "passes of greedy search": sum(len(b.token_ids) + b.is_finished for b in greedy),
            "passes with drafts": passes,
        }
        report["tokens a pass"] = round(report["passes of greedy search"] / passes, 3)
        title = f"Greedy search with drafts of at most {options.lookahead} tokens"
        rows = [[name, f"{count:,}"] for name, count in report.items()]
        note = (
            "Passes are counted by sentence. Greedy search makes one a token, end tokens included."
        )
        table = common.Table(title, ["", "count"], rows, [note])
        common.write(folder, "section7_drafts", [table], {}, report)
    return report


def drafted_search(
    translator: Any, texts: Sequence[str], propose: Propose, lookahead: int
) -> tuple[list[list[int]], int]:
    """Return the tokens of greedy search, whatever is proposed, without end tokens; and how many passes.

    Args:
        translator: A `Translator` with a Keras model.
        texts: Sentences, none of them empty.
        propose: The draft.
        lookahead: Most tokens of a draft, k; 0 is plain greedy search.
    """
    model, end = translator.model, end_of(translator.tokenizer, "source")
    sources = [[*ids, *end] for ids in encode_side(translator.tokenizer, texts, "source")]
    limits = [len(ids) + translator.max_extra_length for ids in sources]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    outputs: list[list[int]] = [[] for _ in texts]
    passes = 0
    # Sentences of about one length share a batch. The first ones that are not done make the next pass.
    waiting = sorted(range(len(texts)), key=lambda row: len(sources[row]))
    while rows := waiting[:ROWS]:
        drafts, read = [], []
        for row in rows:
            room = min(lookahead, limits[row] - len(outputs[row]) - 1)
            drafts.append(list(propose(sources[row], outputs[row], room))[:room])
            read.append([model.start_token_id, *outputs[row], *drafts[-1]])
        chosen = best_tokens(model, [sources[row] for row in rows], read)
        for row, draft, best in zip(rows, drafts, chosen.tolist(), strict=True):
            best = best[len(outputs[row]) :]
            agreed = next((i for i, token in enumerate(draft) if token != best[i]), len(draft))
            accepted = best[: agreed + 1]
            if model.end_token_id in accepted:
                accepted = accepted[: accepted.index(model.end_token_id)]
                limits[row] = 0
            outputs[row] += accepted
        passes += len(rows)
        waiting = [row for row in waiting if len(outputs[row]) < limits[row]]
    return outputs, passes


def best_tokens(
    model: Any, sources: Sequence[Sequence[int]], read: Sequence[Sequence[int]]
) -> np.ndarray:
    """Return the model's choice (B, T) behind each token that the decoder reads, in one pass."""
    from keras import ops

    inputs = {}
    for name, rows in (("encoder_token_ids", sources), ("decoder_token_ids", read)):
        # Few lengths, since JAX compiles each. No token is changed by the padding behind it.
        length = -8 * (-max(map(len, rows)) // 8)
        length = length if model.max_length is None else min(length, model.max_length)
        inputs[name] = np.full((len(rows), length), model.pad_token_id, "int32")
        for row, ids in enumerate(rows):
            inputs[name][row, : len(ids)] = ids
    logits = np.array(ops.convert_to_numpy(model(inputs, training=False)))
    logits[..., list(model.suppressed_token_ids)] = -np.inf
    return logits.argmax(-1)


@dataclasses.dataclass(frozen=True)
class Draft:
    """Proposes tokens y with the largest p(y | last tokens) p(y | source) / p(y).

    Attributes:
        followers: Last tokens -> how often each token followed them.
        lexicon: Source token -> the probabilities of its translations.
        shares: float (V,), the share p(y) of each target token in the text.
        start: The token with which outputs begin.
    """

    followers: dict[tuple[int, ...], collections.Counter[int]]
    lexicon: dict[int, dict[int, float]]
    shares: np.ndarray
    start: int

    @classmethod
    def learn(cls, tokenizer: Any, pairs: Iterable[tuple[str, str]]) -> Draft:
        """Count the n-grams of the targets, and learn the lexicon."""
        sources, targets = (
            [[*ids, *end_of(tokenizer, side)] for ids in encode_side(tokenizer, texts, side)]
            for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True)
        )
        followers: dict[tuple[int, ...], collections.Counter[int]] = {}
        for ids in targets:
            output = [tokenizer.start_token_id, *ids]
            for end in range(1, len(output)):
                for first in range(max(0, end - ORDER + 1), end):
                    counts = followers.setdefault(tuple(output[first:end]), collections.Counter())
                    counts[output[end]] += 1
        shares = np.bincount(np.concatenate(targets), minlength=target_size_of(tokenizer)) + 0.5
        lexicon = learn_lexicon(sources, targets, len(shares))
        return cls(followers, lexicon, shares / shares.sum(), tokenizer.start_token_id)

    def propose(self, source_ids: Sequence[int], output_ids: Sequence[int], k: int) -> list[int]:
        """Return the `k` tokens that most likely follow; fewer where nothing is known."""
        suggested: Any = collections.Counter()
        for source in source_ids:
            for token, probability in self.lexicon.get(source, {}).items():
                suggested[token] += probability / len(source_ids)
        output = [self.start, *output_ids]
        for _ in range(k):
            # A context that was followed by c tokens of n kinds is believed c / (c + n); the next shorter
            # one gets the rest (Witten and Bell 1991), and the shares of all text what is left.
            likely, left = dict.fromkeys(suggested.keys() - {*output}, 0.0), 1.0
            for size in range(min(ORDER - 1, len(output)), 0, -1):
                if counts := self.followers.get(tuple(output[-size:])):
                    total = sum(counts.values()) + len(counts)
                    for token, count in counts.items():
                        likely[token] = likely.get(token, 0.0) + left * count / total
                    left *= len(counts) / total
            if not likely:
                break
            values = {
                token: (value + left * self.shares[token])
                * (PRIOR_SHARE + suggested[token] / self.shares[token])
                for token, value in likely.items()
            }
            output.append(max(values, key=values.__getitem__))
        return output[1 + len(output_ids) :]


def learn_lexicon(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], size: int
) -> dict[int, dict[int, float]]:
    """Return the likely translations of source tokens: model 1 of Brown et al. (1993), for `size` targets."""
    codes, groups, first = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        codes.append(np.add.outer(target, np.multiply(source, size)).reshape(-1))
        groups.append(np.repeat(first + np.arange(len(target)), len(source)))
        first += len(target)
    unique, entries = np.unique(np.concatenate(codes), return_inverse=True)
    group, probabilities = np.concatenate(groups), np.ones(len(unique))
    for _ in range(ITERATIONS):
        weights = probabilities[entries]
        weights /= np.bincount(group, weights)[group]
        counts = np.bincount(entries, weights)
        probabilities = counts / np.bincount(unique // size, counts)[unique // size]
    lexicon: dict[int, dict[int, float]] = collections.defaultdict(dict)
    for code in np.flatnonzero(probabilities > 0.01):
        read, written = divmod(int(unique[code]), size)
        lexicon[read][written] = float(probabilities[code])
    return dict(lexicon)


if __name__ == "__main__":
    common.run(main, parser())
