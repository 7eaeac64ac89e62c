"""Several corpora in one stream of batches: shares, passes, stages, and what is no mixture."""

import collections
import concurrent.futures
import contextlib
import itertools
import pickle  # noqa: TID251
import threading

import numpy as np
import pytest

from keras_attention import TokenStore, corpus_from_files
from keras_attention.data import Filters
from keras_attention.data.mixed_batches import JoinedStore, MixedBatches
from keras_attention.data.mixture import parse_mixture
from tests.data.counting_text import NumberText, NumberTokenizer

pytestmark = pytest.mark.backends("tensorflow")

SIZES = {"web": 211, "clean": 97, "old": 40}
MIXTURE = "clean:3 web:1 until:60 web:2 old:5 until:131 clean:1 web:1 old:0.5".split()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Pairs whose first token tells the corpus: 2, 3 or 4."""
    folder = tmp_path_factory.mktemp("stores")
    random = np.random.default_rng(4)

    def sentence(first):
        words = [first, *random.integers(5, 30, random.integers(0, 9))]
        return " ".join(map(str, words))

    return {
        name: TokenStore.build(
            folder,
            NumberText((sentence(first), sentence(first)) for _ in range(size)),
            NumberTokenizer(30),
            verbose=False,
        )
        for first, (name, size) in enumerate(SIZES.items(), start=2)
    }


def mixed(stores, words=MIXTURE, **options):
    stages = parse_mixture(words, stores)
    return MixedBatches(
        stores, stages, **{"batch_tokens": 60, "seed": 7, "max_shapes": 4, **options}
    )


def test_the_stream_has_the_shares_and_the_passes(stores):
    """The oracle: count what comes, batch by batch and pair by pair, as a reader of the stream does."""
    batches = mixed(stores)
    stages = [(60, {"clean": 3 / 4, "web": 1 / 4}), (131, {"web": 2 / 7, "old": 5 / 7}),
              (10**9, {"clean": 0.4, "web": 0.4, "old": 0.2})]  # fmt: skip
    seen = {name: np.zeros(size, int) for name, size in SIZES.items()}
    taken, stage, begun, orders = collections.Counter(), 0, 0, []
    names = sorted(SIZES)
    starts = dict(zip(names, np.cumsum([0, *(SIZES[name] for name in names)]), strict=False))
    for epoch in range(9):
        for index in range(len(batches)):
            update = epoch * len(batches) + index
            if update == stages[stage][0]:
                stage, taken, begun = stage + 1, collections.Counter(), update
            inputs, labels = batches.batch(epoch, index)
            first = {*inputs["encoder_token_ids"][:, 0], *labels[:, 0]}
            (token,) = first - {0}
            name = list(SIZES)[token - 2]
            pairs = batches.pairs(epoch, index)
            np.add.at(seen[name], pairs[pairs >= 0] - starts[name], 1)
            taken[name] += 1
            orders.append(tuple(pairs))
        # Every pair once in each pass: no pair is two ahead of another one of its corpus.
        for name, counts in seen.items():
            assert counts.max() - counts.min() <= 1, name
        number = (epoch + 1) * len(batches) - begun
        for name, share in stages[stage][1].items():
            assert abs(taken[name] - share * number) < 1
        assert sum(taken.values()) == number
    assert stage == 2 and min(counts.min() for counts in seen.values()) >= 2
    assert len(set(orders)) > 0.9 * len(orders)  # another order in each pass


def test_a_batch_depends_on_nothing_but_its_place(stores):
    batches = mixed(stores)
    places = list(itertools.product(range(5), range(0, len(batches), 7)))
    first = [batches.batch(*place) for place in places]
    late = mixed(dict(reversed(stores.items())))
    copied = pickle.loads(pickle.dumps(batches))
    for place, (inputs, labels) in reversed(list(zip(places, first, strict=True))):
        for other in (late, copied):
            found, found_labels = other.batch(*place)
            np.testing.assert_array_equal(found_labels, labels)
            for name in inputs:
                np.testing.assert_array_equal(found[name], inputs[name])
    again = mixed(stores, seed=8)
    assert any(
        again.batch(*place)[1].shape != labels.shape or (again.batch(*place)[1] != labels).any()
        for place, (_, labels) in zip(places, first, strict=True)
    )
    # Half of each batch for each of two processes.
    halves = [mixed(stores, num_replicas=2).shard(i, 2).batch(1, 3)[1] for i in range(2)]
    np.testing.assert_array_equal(
        np.concatenate(halves), mixed(stores, num_replicas=2).batch(1, 3)[1]
    )


def test_threads_that_draw_one_epoch_at_once_do_not_shift_later_ones(stores):
    batches, alone = mixed(stores), mixed(stores)
    barrier, draw = threading.Barrier(2, timeout=60), batches._drawn

    def drawn_together(epoch):
        found = draw(epoch)
        with contextlib.suppress(threading.BrokenBarrierError):
            if epoch == 0:  # Both threads have drawn it before either one notes it.
                barrier.wait()
        return found

    batches._drawn = drawn_together
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: batches.batch(1, 0), range(2)))
    batches._drawn = draw
    for epoch in range(5):
        for ours, theirs in zip(batches._plan(epoch), alone._plan(epoch), strict=True):
            np.testing.assert_array_equal(ours[1], theirs[1])


def test_the_joined_store_is_its_parts(stores):
    joined = JoinedStore(stores)
    parts = list(stores.values())
    assert len(joined) == sum(SIZES.values()) == len(joined.source_lengths)
    flat = [(part, i) for part in parts for i in range(len(part))]
    for index in (0, 210, 211, 307, 308, 347):
        part, own = flat[index]
        np.testing.assert_array_equal(joined.source(index), part.source(own))
        np.testing.assert_array_equal(joined.target(index), part.target(own))
    rows = joined.padded("target", np.array([308, -1, 5, 211]), 10)
    assert rows.shape == (4, 10) and not rows[1].any()
    np.testing.assert_array_equal(rows[0], parts[2].padded("target", np.array([0]), 10)[0])
    with pytest.raises(IndexError, match="0 to 347"):
        joined.source(348)
    with pytest.raises(ValueError, match="too small"):
        joined.padded("target", np.array([308, 5]), 1)


@pytest.mark.parametrize(
    "words, message",
    [
        (["clean:-1", "web:2"], "'clean:-1'.*at least 0"),
        (["clean:inf"], "'clean:inf'"),
        ([":3"], "':3'.*NAME:WEIGHT"),
        (["clean:x"], "'clean:x'"),
        (["clean:0", "web:0"], "all 0: clean, web"),
        (["clean:1", "clean:2"], "'clean' twice"),
        (["clean:1", "until:5"], "without a corpus, at 'until:5'"),
        (["until:5", "clean:1"], "without a corpus"),
        (["clean:1", "until:0", "web:1"], "'until:0'"),
        (
            ["clean:1", "until:9", "web:1", "until:9", "web:1"],
            "'until:9'.*above that of the stage before",
        ),
        (["clean:1", "until:x", "web:1"], "'until:x'"),
        (["claen:1", "web:1", "old:1"], "'claen', which is none of .*Did you mean 'clean'"),
        (["clean:1", "web:1"], "never trains on old"),
        (["clean:1", "web:1", "old:0"], "never trains on old"),
        ("clean:1", "list of str"),
    ],
)
def test_what_is_no_mixture(words, message):
    with pytest.raises(ValueError, match=message):
        parse_mixture(words, SIZES)


def test_a_corpus_without_a_pair_that_fits_is_named(stores, tmp_path):
    long = NumberText([("9 " * 30, "9 " * 30)])
    store = TokenStore.build(tmp_path, long, NumberTokenizer(30), verbose=False)
    with pytest.raises(ValueError, match="No pair of 'x' is left"):
        mixed({"x": store, "web": stores["web"]}, ["x:1", "web:1"], max_length=20)


def test_parts_of_a_corpus_lack_what_is_held_out(tmp_path):
    files = {}
    for name, size in (("clean", 120), ("web", 80)):
        files[name] = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
        for file, word in zip(files[name], ("line", "Zeile"), strict=True):
            file.write_text("".join(f"{name} {word} {i}\n" for i in range(size)), "utf-8")
    corpus = corpus_from_files(files, validation_size=9, test_size=7)
    assert list(corpus.train) == [*corpus.parts["clean"], *corpus.parts["web"]]
    assert len(corpus.train) == 200 - 16 and len(corpus.parts["clean"]) > 80
    assert not {*corpus.train} & {*corpus.validation, *corpus.test}
    with pytest.raises(ValueError, match="cannot be combined"):
        corpus_from_files(files, filters=Filters(max_words=3))
    with pytest.raises(ValueError, match="`validation` must not be the text that is trained on"):
        corpus_from_files(files, validation=files["web"])
    for wrong in ({}, {"": files["web"]}, {"a": 3}):
        with pytest.raises(ValueError, match="`train"):
            corpus_from_files(wrong)
