"""TokenBatches: every pair once, few shapes, little padding, purity, and fit."""

import collections
import copy
import itertools
import pickle  # noqa: TID251

import keras
import numpy as np
import pytest

from keras_attention import TokenBatches, TokenStore
from keras_attention.data import buckets
from keras_attention.data.buckets import _best_split, choose_buckets
from tests.data.counting_text import NumberTokenizer, natural_lengths, number_text

pytestmark = pytest.mark.backends("torch")

CAPTIONS = natural_lengths(3_000)


def make_store(folder, lengths):
    return TokenStore.build(folder, number_text(lengths), NumberTokenizer(), verbose=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("captions"), CAPTIONS)


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    lengths = [(2, 3), (7, 4), (3, 3), (5, 9), (8, 8), (2, 2), (6, 5), (4, 6), (3, 7), (9, 2)] * 4
    return make_store(tmp_path_factory.mktemp("small"), lengths)


def pair_of(row):
    """Which pair a row of ids is: its first token says so; None for a row of padding."""
    return int(row[0]) - 10 if row.any() else None


def pairs_of_epoch(batches, epoch):
    found = []
    for i in range(len(batches)):
        inputs, labels = batches.batch(epoch, i)
        sources = [pair_of(row) for row in inputs["encoder_token_ids"]]
        assert sources == [pair_of(row) for row in labels]
        found += sources
    return found


def same(first, second):
    return all(
        np.array_equal(a, b)
        for a, b in zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True)
    )


class TestContent:
    @pytest.mark.parametrize("num_replicas, multiple", [(1, 1), (3, 4)])
    def test_against_loops(self, small_store, num_replicas, multiple):
        batches = TokenBatches(
            small_store, batch_tokens=61, num_replicas=num_replicas, length_multiple=multiple
        )
        rows_of_padding = 0
        for epoch, i in itertools.product((0, 3), range(len(batches))):
            inputs, labels = batches.batch(epoch, i)
            source, target = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
            real = tuple(int((x != 0).sum()) for x in (source, labels))
            assert batches.tokens_in_batch(epoch, i) == real
            told = batches.pairs(epoch, i).tolist()
            assert told == [-1 if (pair := pair_of(row)) is None else pair for row in labels]
            rows_of_padding += told.count(-1)
            assert set(inputs) == {"encoder_token_ids", "decoder_token_ids"}
            assert source.dtype == target.dtype == labels.dtype == np.int32
            assert labels.shape == target.shape and len(labels) == len(source)
            assert source.shape[1] % multiple == target.shape[1] % multiple == 0
            for row in range(len(labels)):
                pair = pair_of(labels[row])
                if pair is None:
                    assert not source[row].any() and not target[row].any()
                    continue
                expected_source = small_store.source(pair).tolist()
                expected = small_store.target(pair).tolist()
                padding = [0] * (labels.shape[1] - len(expected))
                assert expected[-1] == expected_source[-1] == 1
                assert labels[row].tolist() == expected + padding
                assert target[row].tolist() == [0, *expected[:-1]] + padding
                assert source[row].tolist() == expected_source + [0] * (
                    source.shape[1] - len(expected_source)
                )
        assert bool(rows_of_padding) == (num_replicas > 1)

    @pytest.mark.parametrize("shuffle", [True, False])
    @pytest.mark.parametrize("batch_tokens, num_replicas", [(300, 1), (701, 3), (4096, 2)])
    def test_every_pair_once(self, store, shuffle, batch_tokens, num_replicas):
        batches = TokenBatches(
            store, batch_tokens, shuffle=shuffle, num_replicas=num_replicas, max_length=None
        )
        for epoch in (0, 1, 6):
            found = collections.Counter(pairs_of_epoch(batches, epoch))
            padding_rows = found.pop(None, 0)
            assert found == dict.fromkeys(range(len(CAPTIONS)), 1)
            assert padding_rows <= 24 * (num_replicas - 1)


class TestShapes:
    @pytest.mark.parametrize(
        "batch_tokens, num_replicas, max_shapes", [(300, 1, 24), (1500, 4, 24), (4096, 1, 5)]
    )
    def test_small_fixed_set(self, store, batch_tokens, num_replicas, max_shapes):
        batches = TokenBatches(
            store, batch_tokens, num_replicas=num_replicas, max_shapes=max_shapes
        )
        shapes = set(batches.statistics()["shapes"])
        assert 2 <= len(shapes) <= max_shapes
        for epoch in range(3):
            seen = collections.Counter()
            for i in range(len(batches)):
                inputs, labels = batches.batch(epoch, i)
                seen[(*inputs["encoder_token_ids"].shape, labels.shape[1])] += 1
            assert set(seen) == shapes
            for (rows, source, target), count in seen.items():
                longest = max(source, target)
                full = batch_tokens // (longest * num_replicas) * num_replicas
                assert rows % num_replicas == 0
                assert rows == full or rows < full and count == 1

    def test_about_as_many_tokens_as_asked(self, store):
        statistics = TokenBatches(store, 1000).statistics()
        for side in ("source", "target"):
            assert 750 <= statistics[f"{side}_tokens_per_batch"] <= 1000

    def test_little_padding(self, tmp_path):
        lengths = natural_lengths(6_000, seed=3)
        store = make_store(tmp_path, lengths)
        for batch_tokens, bound in ((2048, 0.12), (500, 0.09)):
            batches = TokenBatches(store, batch_tokens)
            positions = real = 0
            for i in range(len(batches)):
                inputs, labels = batches.batch(0, i)
                for ids in (inputs["encoder_token_ids"], labels):
                    positions += ids.size
                    real += np.count_nonzero(ids)
            assert real == np.sum(lengths)
            assert 1 - real / positions < bound
            assert batches.statistics()["padding"] == pytest.approx(1 - real / positions)

    def test_one_length_pads_nothing(self, tmp_path):
        batches = TokenBatches(make_store(tmp_path, [(6, 4)] * 50), batch_tokens=72)
        assert batches.statistics()["shapes"] == [(2, 6, 4), (12, 6, 4)]
        assert batches.statistics()["padding"] == 0

    def test_first_two_vary(self, small_store, store):
        """On TensorFlow, Keras takes an axis for fixed where the first two batches agree."""
        for seed, shuffle in itertools.product(range(5), (True, False)):
            for each, tokens in ((small_store, 30), (store, 2000)):
                batches = TokenBatches(each, tokens, shuffle=shuffle, seed=seed)
                for epoch in range(4):
                    first, second = (keras.tree.flatten(batches.batch(epoch, i)) for i in (0, 1))
                    assert all(a.shape[1] != b.shape[1] for a, b in zip(first, second, strict=True))


class TestChoice:
    def test_split_against_brute_force(self):
        random = np.random.default_rng(1)

        def cost(part):  # of all rows: their positions, and their shares of a batch of 29
            rows = 3 * int(29 / part.max() / 3)
            return part.shape[1] * (part.max(axis=1).sum() + 29 / rows)

        for _ in range(20):
            lengths = random.integers(1, 9, (2, 30))
            saved, best = 0, None
            for side, bound in itertools.product((0, 1), range(1, 9)):
                below = lengths[side] <= bound
                if below.all() or not below.any():
                    continue
                gain = cost(lengths) - cost(lengths[:, below]) - cost(lengths[:, ~below])
                if gain > saved:
                    saved, best = gain, below
            distinct, inverse, counts = np.unique(
                lengths, axis=1, return_inverse=True, return_counts=True
            )
            found, mask = _best_split(distinct, counts, batch_tokens=29, num_replicas=3)
            assert found == pytest.approx(saved)
            assert np.array_equal(mask[inverse], best)

    def test_counting_in_a_table_is_as_good_as_sorting(self, monkeypatch):
        lengths = np.array(CAPTIONS).T
        table = choose_buckets(lengths, 700, num_replicas=2, max_shapes=13)
        monkeypatch.setattr(buckets, "MOST_COUNTED", 0)
        sorting = choose_buckets(lengths, 700, num_replicas=2, max_shapes=13)
        assert table[0] == sorting[0] and np.array_equal(table[1], sorting[1])

    def test_a_rest_padded_to_a_full_batch_costs_no_shape(self, tmp_path):
        # All rows are multiples of 8, so the number of pairs modulo 8 is that of the last batch.
        batches = [
            TokenBatches(
                make_store(tmp_path / str(pairs), CAPTIONS[:pairs]),
                batch_tokens=8 * max(map(max, CAPTIONS)) + 7,
                num_replicas=8,
                max_shapes=6,
            )
            for pairs in (1600, 1602)
        ]
        shapes, one_more = (set(each.statistics()["shapes"]) for each in batches)
        assert len(shapes) == len(one_more) == 6
        assert len(batches[1]) - len(batches[0]) in (0, 1)

    def test_updates_grow_as_the_text_does(self):
        spreads = []
        for seed in range(6):
            random = np.random.default_rng(seed)
            source = np.exp(random.normal(3.2, 0.6, 7000))
            target = source * np.exp(random.normal(0.1, 0.2, 7000))
            lengths = np.array([source, target]).astype(int) + 2
            lengths = lengths[:, (lengths <= 192).all(axis=0)]
            updates_per_pair = []
            for pairs in range(4000, 6001, 250):
                shapes, _ = choose_buckets(
                    lengths[:, :pairs], batch_tokens=1536, num_replicas=8, max_shapes=6
                )
                updates = sum(each.whole + (each.next is None and each.rest > 0) for each in shapes)
                updates_per_pair.append(updates / pairs)
            spreads.append(max(updates_per_pair) / min(updates_per_pair))
        assert np.mean(spreads) < 1.05

    def test_more_shapes_never_pad_more(self, store):
        padding = [
            TokenBatches(store, 1024, max_shapes=shapes).statistics()["padding"]
            for shapes in (2, 6, 12, 24, 48)
        ]
        assert padding == sorted(padding, reverse=True)
        assert padding[0] > 2 * padding[-1]


class TestOrder:
    def test_pure_function_of_seed_epoch_index(self, store):
        batches = TokenBatches(store, 900, seed=4)
        expected = {(e, i): batches.batch(e, i) for e in range(3) for i in range(len(batches))}
        for key in [(2, 1), (0, len(batches) - 1), (1, 0), (2, 0), (0, 0)]:
            assert same(TokenBatches(store, 900, seed=4).batch(*key), expected[key])
        for key in reversed(expected):
            assert same(batches.batch(*key), expected[key])

    def test_epochs_and_seeds_differ(self, store):
        orders = {
            (seed, epoch): pairs_of_epoch(TokenBatches(store, 900, seed=seed), epoch)
            for seed, epoch in itertools.product((4, 5), (0, 1))
        }
        for first, second in itertools.combinations(orders.values(), 2):
            assert sum(a == b for a, b in zip(first, second, strict=True)) < 0.05 * len(first)

    def test_shuffles_inside_and_among_buckets(self, store):
        batches = TokenBatches(store, 900)
        together, lengths = [], []
        for epoch in (0, 1):
            rows = [frozenset(batches.pairs(epoch, i).tolist()) for i in range(len(batches))]
            together.append(set(rows))
            lengths.append([batches.batch(epoch, i)[1].shape for i in range(len(batches))])
        assert len(together[0] & together[1]) < 0.1 * len(batches)
        assert lengths[0] != lengths[1] != sorted(lengths[1])
        assert sorted(lengths[0]) == sorted(lengths[1])

    @pytest.mark.parametrize("parts, is_even", [(4, False), (3, True)])
    def test_several_epochs_are_a_pass(self, store, parts, is_even):
        whole = TokenBatches(store, 900, seed=4)
        batches = TokenBatches(store, 900, seed=4, epochs_per_pass=parts)
        length = len(batches)
        filled_up = parts * length - len(whole)
        assert 0 <= filled_up < parts and (filled_up == 0) == is_even
        passes = []
        for number in (0, 2):
            epochs = range(number * parts, (number + 1) * parts)
            seen = [frozenset(batches.pairs(e, i).tolist()) for e in epochs for i in range(length)]
            expected = [frozenset(whole.pairs(number, i).tolist()) for i in range(len(whole))]
            counts = collections.Counter(seen)
            assert set(counts) == set(expected)
            assert sorted(counts.values()) == [1] * (len(whole) - filled_up) + [2] * filled_up
            passes.append(set(seen))
        assert passes[0] != passes[1]
        statistics = batches.statistics()
        pairs = {pair for i in range(length) for pair in batches.pairs(0, i).tolist()}
        assert statistics["pairs"] == len(pairs) < len(CAPTIONS) / 2
        assert statistics["source_tokens"] == store.source_lengths[list(pairs)].sum()
        assert sum(shape["batches"] for shape in batches.shape_statistics()) == length

    def test_a_pass_over_short_epochs_is_shuffled(self, store):
        with pytest.raises(ValueError, match="needs `shuffle=True`. Received: epochs_per_pass=2"):
            TokenBatches(store, 900, shuffle=False, epochs_per_pass=2)
        sampled = copy.copy(store)
        sampled.metadata = {**store.metadata, "samples": 3}
        assert TokenBatches(sampled, 900).epochs_per_pass == 3
        assert TokenBatches(sampled, 900, shuffle=False).epochs_per_pass == 1

    def test_unshuffled_epochs_are_alike(self, small_store):
        batches = TokenBatches(small_store, 50, shuffle=False, seed=1)
        other = TokenBatches(small_store, 50, shuffle=False, seed=2)
        for i in range(len(batches)):
            assert same(batches.batch(0, i), batches.batch(5, i))
            assert same(batches.batch(0, i), other.batch(1, i))

    def test_resume(self, small_store):
        batches = TokenBatches(small_store, 50)
        batches.set_epoch(7)
        assert same(batches[1], TokenBatches(small_store, 50).batch(7, 1))
        batches.on_epoch_end()  # not all batches were read
        assert batches.epoch == 7
        with pytest.raises(
            ValueError, match="`epoch` must be an int of at least 0. Received: epoch=-1"
        ):
            batches.set_epoch(-1)

    def test_index_bounds(self, small_store):
        batches = TokenBatches(small_store, 50)
        assert len(list(batches)) == len(batches)
        for index in (-1, len(batches)):
            with pytest.raises(IndexError, match=f"batches 0 to {len(batches) - 1}"):
                batches.batch(0, index)


class TestArguments:
    def test_max_length(self, tmp_path):
        lengths = [(3, 12), (12, 3), (13, 4), (4, 13), (13, 13), (5, 5)]
        store = make_store(tmp_path, lengths)
        for max_length, kept in ((12, [0, 1, 5]), (None, range(6)), (256, range(6)), (5, [5])):
            batches = TokenBatches(store, batch_tokens=40, max_length=max_length)
            assert sorted(pairs_of_epoch(batches, 0)) == list(kept)
            assert batches.dropped_long == batches.statistics()["dropped_long"] == 6 - len(kept)
            assert batches.statistics()["pairs"] == len(kept)
        with pytest.raises(ValueError, match="all 6 have a side of more than `max_length` .4."):
            TokenBatches(store, max_length=4)

    @pytest.mark.parametrize("num_replicas, multiple, least", [(1, 1, 9), (3, 1, 27), (2, 4, 24)])
    def test_batch_tokens_too_small(self, small_store, num_replicas, multiple, least):
        arguments = {"num_replicas": num_replicas, "length_multiple": multiple}
        with pytest.raises(
            ValueError,
            match=f"`batch_tokens` .{least - 1}. .* at least {num_replicas} row.* Raise it to {least}",
        ):
            TokenBatches(small_store, batch_tokens=least - 1, **arguments)
        batches = TokenBatches(small_store, batch_tokens=least, **arguments)
        assert set(pairs_of_epoch(batches, 0)) >= set(range(40))

    def test_numpy_integers(self, small_store):
        batches = TokenBatches(small_store, np.int64(50), seed=np.int32(0))
        assert same(batches.batch(0, 0), TokenBatches(small_store, 50).batch(0, 0))


class RealTokens(keras.metrics.Metric):
    """Counts the labels of an epoch that are not padding."""

    def __init__(self, name="tokens"):
        super().__init__(name=name)
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        real = keras.ops.cast(keras.ops.not_equal(y_true, 0), "float32")
        self.total.assign_add(keras.ops.sum(real))

    def result(self):
        return keras.ops.convert_to_tensor(self.total)


class TestFit:
    """`fit` and `evaluate` of the backend at hand read every epoch whole, in its own order."""

    def make_model(self):
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")
        embed = keras.layers.Embedding(60_000, 3)
        context = keras.layers.GlobalAveragePooling1D(keepdims=True)(embed(source))
        logits = keras.layers.Dense(11)(keras.layers.Add()([embed(target), context]))
        model = keras.Model({"encoder_token_ids": source, "decoder_token_ids": target}, logits)
        loss = keras.losses.MeanSquaredError()
        model.compile(
            keras.optimizers.SGD(1e-3),
            loss=lambda y, logits: loss(keras.ops.cast(y, "float32")[..., None] / 60_000, logits),
            metrics=[RealTokens()],
            jit_compile=False,
        )
        return model

    def test_epochs(self, small_store):
        batches = TokenBatches(small_store, batch_tokens=50, max_shapes=4)
        held_out = TokenBatches(small_store, batch_tokens=36, shuffle=False, max_shapes=3)
        assert len(batches) > 4
        read = []
        original = batches.batch
        batches.batch = lambda epoch, i: (read.append((epoch, i)), original(epoch, i))[1]
        options = {"epochs": 3, "shuffle": False, "verbose": 0, "validation_data": held_out}
        history = self.make_model().fit(batches, **options).history
        real = int(small_store.target_lengths.sum())
        assert history["tokens"] == history["val_tokens"] == [real] * 3
        assert np.isfinite(history["loss"]).all()
        assert batches.epoch == 3
        everything = set(itertools.product(range(3), range(len(batches))))
        assert everything <= set(read) <= everything | {(3, i) for i in range(len(batches))}

    def test_two_fits_go_on(self, small_store):
        model = self.make_model()
        batches = TokenBatches(small_store, batch_tokens=50, max_shapes=4)
        for epochs in (1, 2):
            model.fit(batches, initial_epoch=epochs - 1, epochs=epochs, shuffle=False, verbose=0)
            assert batches.epoch == epochs
        real = int(small_store.target_lengths.sum())
        assert model.evaluate(batches, verbose=0, return_dict=True)["tokens"] == real


def test_batches_say_the_vocabulary_of_their_store(small_store):
    assert (
        TokenBatches(small_store, batch_tokens=61).vocabulary_size
        == NumberTokenizer().vocabulary_size
    )


def test_the_signature_fits_every_batch(tmp_path):
    fixed, varied = (
        TokenBatches(make_store(tmp_path / name, lengths), batch_tokens=64)
        for name, lengths in (("fixed", [(4, 7)] * 20), ("varied", [(4, 7), (9, 5), (3, 11)] * 9))
    )
    for batches, shapes in ((fixed, [(None, 4), (None, 7)]), (varied, [(None, None)] * 2)):
        inputs, labels = batches.signature
        assert [inputs[f"{side}_token_ids"].shape for side in ("encoder", "decoder")] == shapes
        for index in range(len(batches)):
            found = keras.tree.flatten(batches[index])
            for spec, array in zip(keras.tree.flatten((inputs, labels)), found, strict=True):
                assert spec.dtype == array.dtype
                assert all(a in (None, b) for a, b in zip(spec.shape, array.shape, strict=True))


class TestProcesses:
    def test_a_copy_goes_its_own_way(self, small_store):
        batches = TokenBatches(small_store, 50, seed=3).shard(0, 1)
        batches.set_epoch(2)
        expected = [batches[index] for index in range(len(batches))]
        for again in (pickle.loads(pickle.dumps(batches)), copy.deepcopy(batches)):
            assert (again.epoch, len(again)) == (2, len(batches))
            assert all(same(again[i], batch) for i, batch in enumerate(expected))
            again.set_epoch(5)
            assert batches.epoch == 2
        assert len(pickle.dumps(small_store)) < 500  # The files are not copied.

    def test_shares_in_order_are_the_batch(self, small_store):
        batches = TokenBatches(small_store, 60, seed=3, num_replicas=6)
        shares = [batches.shard(index, 3) for index in range(3)]
        for epoch, index in ((0, 0), (0, len(batches) - 1), (2, 1)):
            inputs, labels = batches.batch(epoch, index)
            read = [share.batch(epoch, index) for share in shares]
            assert {len(y) for _, y in read} == {len(labels) // 3}
            joined = {name: np.concatenate([x[name] for x, _ in read]) for name in inputs}
            assert same((joined, np.concatenate([y for _, y in read])), (inputs, labels))

    def test_a_share_tells_of_whole_batches_and_counts_its_own_epochs(self, small_store):
        batches = TokenBatches(small_store, 60, seed=3, num_replicas=6)
        share = batches.shard(1, 2)
        assert len(share) == len(batches)
        assert share.batch_shape(0, 1) == batches.batch_shape(0, 1)
        assert share.statistics() == batches.statistics()
        for index in range(len(share)):
            share[index]
        share.on_epoch_end()
        assert (share.epoch, batches.epoch) == (1, 0)
        assert same(share[1], batches.shard(1, 2).batch(1, 1))

    @pytest.mark.parametrize(
        "index, count, message",
        [
            (2, 2, "index=2"),
            (0, 4, "must divide num_replicas=6 .*count=4"),
            (0, 0, "count"),
            (-1, 2, "index"),
        ],
    )
    def test_shares_that_do_not_fit(self, small_store, index, count, message):
        with pytest.raises(ValueError, match=message):
            TokenBatches(small_store, 60, num_replicas=6).shard(index, count)

    @pytest.mark.parametrize(
        "name, value, kept", [("workers", 2, 1), ("use_multiprocessing", True, False)]
    )
    def test_keras_workers_change_nothing(self, small_store, name, value, kept):
        batches = TokenBatches(small_store, batch_tokens=50)
        with pytest.warns(UserWarning, match=f"{name}={value} has no effect"):
            setattr(batches, name, value)
        assert getattr(batches, name) == kept
