"""The search over shared buffers: against every hypothesis and the slow search, in pure NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_attention.decoding.hypotheses import SearchRules
from keras_attention.decoding.incremental_search import incremental_search
from keras_attention.engine.base import State
from tests.decoding.oracle_search import LIMITS, SEARCHES, Tables, as_list, assert_same

pytestmark = pytest.mark.backends("torch")

START, PAD, UNWRITTEN = 9, 0, -5


class TableState(State):
    """Knows what a beam has been fed from what it is told of the beams that go on, as states of cells are.

    The buffer and the biases of its history must say the same.
    """

    masked = -7.0

    def __init__(self, tables, beam_size, row_sizes=None, fixed_length=None):
        self.tables = tables
        self.sentences = np.arange(tables.num_sentences)
        engine = SimpleNamespace(fixed_shapes=fixed_length is not None, cells=(0,))
        super().__init__(engine, tables.num_sentences, beam_size)
        self.fed = np.empty((tables.num_sentences, beam_size, 0), "int32")
        slots = beam_size * (fixed_length or 0)
        self.buffer = np.full((tables.num_sentences, slots), UNWRITTEN, "int32")
        self.beam_size = beam_size
        self.row_sizes = row_sizes
        self.steps = []  # (rows, index) of each
        self.rooms = []  # (slots before, slots kept) of each move

    def padded_batch_size(self, number):
        sizes = self.row_sizes or [number]
        return min(size for size in sizes if size >= number)

    def select_rows(self, rows):
        super().select_rows(rows)
        self.sentences, self.buffer = self.sentences[rows], self.buffer[rows]
        self.fed = self.fed[rows]

    def compact(self, slots, room):
        assert not self.engine.fixed_shapes and slots.dtype == np.int32
        self.rooms.append((self.buffer.shape[1], slots.shape[1]))
        kept = np.take_along_axis(self.buffer, slots, axis=1)
        assert not np.any(kept == UNWRITTEN)
        free = np.full((len(slots), room), UNWRITTEN)
        self.buffer = np.concatenate([kept, free], axis=1)

    def step(self, token_ids, index, start, history_bias, width):
        assert token_ids.dtype == np.int32 and history_bias.dtype == np.float32
        assert history_bias.shape == (*token_ids.shape, self.buffer.shape[1])
        assert set(np.unique(history_bias)) <= {0.0, self.masked}
        assert token_ids.shape == (len(self.sentences), self.beam_size)
        self.steps.append((len(token_ids), index))
        own = self.buffer[:, start : start + self.beam_size]
        assert np.all(own == UNWRITTEN) and own.shape == token_ids.shape
        own[:] = token_ids
        goes_on = np.take_along_axis(self.fed, self.parents[:, :, None], axis=1)
        self.fed = np.concatenate([goes_on, token_ids[:, :, None]], axis=2)
        rows = np.empty((*token_ids.shape, self.tables.vocabulary_size))
        for b, k in np.ndindex(*token_ids.shape):
            history = self.fed[b, k]
            seen = np.flatnonzero(history_bias[b, k] == 0.0)
            assert len(seen) == index + 1, "one place of each step"
            assert seen[-1] == start + k, "the own new one, and none behind it"
            assert np.array_equal(self.buffer[b, seen], history)
            assert history[0] == START
            rows[b, k] = self.tables.log_probabilities(self.sentences[b], tuple(history[1:]))
        order = np.argsort(-rows, axis=-1, kind="stable")[..., :width]
        return np.take_along_axis(rows, order, -1).astype("float32"), order.astype("int32")


def search(tables, limits, beam_size, end, state=(), **options):
    decoder = TableState(tables, beam_size, *state)
    longest = options.get("max_length") or max(1, *limits)
    rules = SearchRules(beam_size, START, end, PAD, options.get("length_penalty", 0.6))
    limits = np.array(limits, "int32")
    result = incremental_search(decoder, limits, rules, options.get("stop", "best"), longest)
    return as_list(result), decoder


@pytest.mark.parametrize(
    ("row_sizes", "block"),
    [(None, None), ([11], None), (None, 1), ([1, 4, 6, 8, 11], 2), ([11], 1)],
)
@pytest.mark.parametrize("beam_size, alpha, stop", SEARCHES)
def test_same_as_slow_search(beam_size, alpha, stop, row_sizes, block, monkeypatch):
    """Different limits in one batch; a beam of 7 is larger than the vocabulary of 5.

    With buffers for 1 or 2 steps, full again and again, or made for all steps at once.
    """
    end, limits = 3, LIMITS
    tables = Tables(seed=11, num_sentences=len(limits), vocabulary_size=5)
    if block is not None:
        monkeypatch.setattr("keras_attention.decoding.incremental_search.BLOCK", block)
    fixed_length = max(limits) if block is None else None
    state = (row_sizes, fixed_length)
    got, decoder = search(tables, limits, beam_size, end, state, length_penalty=alpha, stop=stop)
    assert bool(decoder.rooms) == (block is not None)
    if block == 1 and beam_size == 7:
        assert any(kept < before for before, kept in decoder.rooms), "what nobody sees goes"
    steps = []
    for sentence, limit in enumerate(limits):
        expected, number = tables.slow_search(sentence, end, limit, alpha, beam_size, stop)
        assert_same(got[sentence], expected)
        steps.append(number)
    assert len(set(steps)) > 1, "sentences stop at different steps"
    assert [index for _, index in decoder.steps] == list(range(max(steps)))
    rows = [number for number, _ in decoder.steps]
    if row_sizes == [11]:
        assert set(rows) == {11}
    else:
        assert rows == sorted(rows, reverse=True)
        assert rows[-1] < rows[0], "who is done is dropped"
        assert row_sizes is None or set(rows) <= set(row_sizes)
    if row_sizes is None:
        wanted = [len(limits)]
        for index in range(max(steps)):
            searched = sum(number > index for number in steps)
            wanted.append(searched if searched <= 0.75 * wanted[-1] else wanted[-1])
        assert rows == wanted[1:], "the others' state is copied when a quarter is done"


class ConstantTables:
    def __init__(self, logits, num_sentences=1):
        logits = np.array(logits, "float64")
        self.row = logits - np.log(np.sum(np.exp(logits)))
        self.vocabulary_size, self.num_sentences = len(logits), num_sentences

    def log_probabilities(self, sentence, prefix):
        return self.row


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_certain_end_stops_at_once(beam_size):
    tables = ConstantTables([-np.inf, 2.0, -np.inf], num_sentences=2)
    got, decoder = search(tables, [4, 4], beam_size, end=1, stop="n_best")
    assert got == [[(0.0, (1,), True)]] * 2 and decoder.steps == [(2, 0)]


def test_logits_that_are_not_finite_end_without_a_hypothesis():
    tables = Tables(seed=5, num_sentences=2, vocabulary_size=4)
    sound = search(tables, [3, 3], 2, end=1)[0]
    plain = tables.log_probabilities
    tables.log_probabilities = lambda s, prefix: plain(s, prefix) * (np.nan if s else 1.0)
    assert search(tables, [3, 3], 2, end=1)[0] == [sound[0], []]
