"""Token ids made in chunks: the store is that which one process makes."""

import pytest

from keras_attention.data import token_store
from keras_attention.data.token_store import TokenStore
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.recipes import TranslationConfig, bulk_store, prepare_corpus
from keras_attention.recipes.prepare import Resolved
from tests.helpers import contents
from tests.recipes.small_runs import small_corpus

pytestmark = pytest.mark.backends("torch")


def config(**more):
    return TranslationConfig(preset="tiny", vocabulary_size=320, steps=2, batch_tokens=600, **more)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Of 60 pairs to train on, in 9 chunks."""
    for module in (token_store, bulk_store):
        monkeypatch.setattr(module, "CHUNK_PAIRS", 7)
    return small_corpus(tmp_path)


@pytest.mark.parametrize("sampling", [{}, {"bpe_dropout": 0.2, "bpe_samples": 3}])
def test_shares_make_the_store_of_one_process(corpus, tmp_path, sampling, monkeypatch):
    run = tmp_path / "run"
    given = {"show_progress": False}
    assert prepare_corpus(corpus, config(**sampling), run, share=(2, 2), **given) is None
    store = prepare_corpus(corpus, config(**sampling), run, share=(1, 2), **given)
    tokenizer = Tokenizer.load(run / "tokenizer")
    alone = TokenStore.build(
        tmp_path / "alone",
        corpus.train,
        tokenizer,
        False,
        **Resolved.of(config(**sampling)).sampling,
    )
    assert contents(store) == contents(alone.folder)
    assert [path.name for path in (run / "store").iterdir()] == [store.name]

    def nothing_is_encoded(*given):
        raise AssertionError

    # Training finds it, and a third start has nothing to do.
    monkeypatch.setattr(token_store, "encoded_chunk", nothing_is_encoded)
    monkeypatch.setattr(bulk_store, "encoded_chunk", nothing_is_encoded)
    built = TokenStore.build(
        run / "store", corpus.train, tokenizer, **Resolved.of(config(**sampling)).sampling
    )
    assert built.folder == store
    assert prepare_corpus(corpus, config(**sampling), run, **given) == store


def test_what_was_done_is_not_done_again(corpus, tmp_path, monkeypatch):
    run, count = tmp_path / "run", []
    encode = bulk_store.encoded_chunk

    def encode_four(*given):
        if len(count) == 4:
            raise RuntimeError("out of order")
        count.append(given)
        return encode(*given)

    monkeypatch.setattr(bulk_store, "encoded_chunk", encode_four)
    with pytest.raises(RuntimeError, match="out of order"):
        prepare_corpus(corpus, config(), run, show_progress=False)
    monkeypatch.setattr(bulk_store, "encoded_chunk", lambda *a: count.append(a) or encode(*a))
    assert prepare_corpus(corpus, config(), run, show_progress=False).is_dir()
    assert len(count) == 9


def test_another_configuration_is_refused_as_training_does(corpus, tmp_path):
    prepare_corpus(corpus, config(), tmp_path / "run", show_progress=False)
    (tmp_path / "run" / "report.json").write_text("{}")  # as if it had trained
    with pytest.raises(ValueError, match="another configuration.*seed"):
        prepare_corpus(corpus, config(seed=5), tmp_path / "run", show_progress=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(ValueError, match="not the folder of a run"):
        prepare_corpus(corpus, config(), tmp_path / "mine", show_progress=False)
