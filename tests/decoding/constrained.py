"""A constrained search beside the enumeration of all hypotheses that a plain Python rule accepts."""

import keras
import numpy as np
from keras import ops

from keras_attention.decoding import beam_search
from keras_attention.ops.compile import compile_for_inference
from tests.decoding.oracle_search import Tables, penalty

ALPHA = 0.6


class LastToken(Tables):
    """The next token depends on the position and on the last one, in each sentence differently."""

    def log_probabilities(self, sentence, prefix):
        return super().log_probabilities(sentence, (len(prefix), *prefix[-1:]))


def search(tables, limits, beam_size, end, constraint, start):
    """The n best of each sentence, [(score, tokens, is_finished)]."""
    limit, size = max(limits), tables.vocabulary_size
    table = np.array([
        [[tables.log_probabilities(b, (0,) * (i - 1) + (last,) * (i > 0)) for last in range(size)]
         for i in range(limit)]
        for b in range(len(limits))
    ], "float32")  # fmt: skip

    def step(token_ids, index, cache):
        rows = ops.take(ops.convert_to_tensor(table), index, axis=1)
        return ops.take_along_axis(rows, token_ids[..., None], axis=1), cache

    def run(state, max_lengths):
        return beam_search(
            step, {}, max_lengths, beam_size, start_token_id=0, end_token_id=end, pad_token_id=-1,
            length_penalty=ALPHA, stop="n_best", max_length=limit,
            constraint=constraint, constraint_state=state,
        )  # fmt: skip

    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    run = compile_for_inference(run, layer)
    result = run(start, np.array(limits, "int32"))
    sequences, scores, lengths, finished = (ops.convert_to_numpy(field) for field in result)
    return [
        [
            (float(scores[b, k]), tuple(sequences[b, k, : lengths[b, k]].tolist()), finished[b, k])
            for k in range(beam_size)
            if lengths[b, k]
        ]
        for b in range(len(limits))
    ]


def every_accepted(tables, sentence, limit, end, accepts, rescored):
    """All hypotheses with an end within the limit that the rule accepts, best first."""
    found = []

    def grow(prefix, total):
        row = rescored(tables.log_probabilities(sentence, prefix))
        for token in range(tables.vocabulary_size):
            tokens, score = (*prefix, token), total + row[token]
            if token == end and accepts(sentence, tokens):
                found.append((score / penalty(len(tokens), ALPHA), tokens))
            elif token != end and len(tokens) < limit:
                grow(tokens, score)

    grow((), 0.0)
    return sorted(found, reverse=True)


def assert_all_found(got, tables, limits, end, accepts, rescored=lambda row: row):
    for sentence, limit in enumerate(limits):
        expected = every_accepted(tables, sentence, limit, end, accepts, rescored)
        assert expected and [tokens for _, tokens, _ in got[sentence]] == [t for _, t in expected]
        assert all(is_finished for _, _, is_finished in got[sentence])
        np.testing.assert_allclose(
            [score for score, *_ in got[sentence]], [score for score, _ in expected], rtol=2e-5
        )
