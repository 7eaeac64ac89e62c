"""The parts of batches that several processes read."""

import numpy as np
import pytest

from keras_attention import TokenBatches, Tokenizer, TokenStore
from keras_attention.data.corpora import load_corpus

pytestmark = pytest.mark.backends("tensorflow")


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    text = load_corpus("demo").validation
    tokenizer = Tokenizer.train([*text.sources(), *text.targets()], vocabulary_size=600)
    store = TokenStore.build(tmp_path_factory.mktemp("store"), text, tokenizer)
    return TokenBatches(store, batch_tokens=512, seed=3, num_replicas=6)


def test_parts_in_order_are_the_batch(batches):
    parts = [batches.shard(index, 3) for index in range(3)]
    for epoch, index in ((0, 0), (0, len(batches) - 1), (2, 1)):
        inputs, labels = batches.batch(epoch, index)
        read = [part.batch(epoch, index) for part in parts]
        assert {len(y) for _, y in read} == {len(labels) // 3}
        np.testing.assert_array_equal(np.concatenate([y for _, y in read]), labels)
        for name, whole in inputs.items():
            np.testing.assert_array_equal(np.concatenate([x[name] for x, _ in read]), whole)


def test_a_part_tells_of_whole_batches_and_counts_its_own_epochs(batches):
    part = batches.shard(1, 2)
    assert len(part) == len(batches)
    assert part.batch_shape(0, 1) == batches.batch_shape(0, 1)
    assert part.statistics() == batches.statistics()
    for index in range(len(part)):
        part[index]
    part.on_epoch_end()
    assert (part.epoch, batches.epoch) == (1, 0)
    np.testing.assert_array_equal(part[1][1], batches.shard(1, 2).batch(1, 1)[1])


def test_a_part_of_the_rest_of_an_epoch(batches):
    rest = batches.shard(1, 2).from_batch(1, 2)
    rest.on_epoch_begin()
    np.testing.assert_array_equal(rest[0][1], batches.shard(1, 2).batch(1, 2)[1])


@pytest.mark.parametrize(
    "index, count, message",
    [
        (2, 2, "index=2"),
        (0, 4, "must divide num_replicas=6 .*count=4"),
        (0, 0, "count"),
        (-1, 2, "index"),
    ],
)
def test_numbers_that_do_not_fit(batches, index, count, message):
    with pytest.raises(ValueError, match=message):
        batches.shard(index, count)
