"""The thread that translates for all, and its queue."""

import threading
from concurrent.futures import Future

import pytest

from keras_attention.decoding.requests import WrongText
from keras_attention.serving.worker import Job, QueueFull, Texts, Worker, translate_together
from tests.serving.served import WAIT, Shouting, shouted, wait_until

pytestmark = pytest.mark.backends("torch")


@pytest.fixture
def held():
    """A worker whose first work waits; it remembers what it has worked on together."""
    may_go, done = threading.Event(), []

    def work(jobs):
        done.append([job.request for job in jobs])
        assert may_go.wait(WAIT)
        for job in jobs:
            job.answer.set_result(job.request * 2)

    worker = Worker(work, 5, 7, "held")
    worker.may_go, worker.done = may_go, done
    worker.first = worker.submit("a", 3)
    wait_until(lambda: done == [["a"]])
    yield worker
    may_go.set()
    worker.close()


def test_what_waits_is_worked_on_together_in_order_as_far_as_it_fits(held):
    sizes = {"b": 2, "c": 5, "d": 1, "e": 9, "f": 1}
    answers = {name: held.submit(name, size) for name, size in sizes.items()}
    assert held.waiting() == 5
    held.may_go.set()
    assert {name: answer.result(WAIT) for name, answer in answers.items()} == {
        name: name * 2 for name in sizes
    }
    assert held.first.result(WAIT) == "aa"
    # 2 + 5 are 7; 1 + 9 are more; 9 alone is more than 7, and worked on all the same.
    assert held.done == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]


def test_a_full_queue_refuses_and_those_who_went_away_make_room(held):
    waiting = [held.submit(name) for name in "bcdef"]
    with pytest.raises(QueueFull):
        held.submit("g")
    assert waiting[1].cancel() and waiting[4].cancel()
    last = [held.submit("g"), held.submit("h")]
    with pytest.raises(QueueFull):
        held.submit("i")
    held.may_go.set()
    assert [answer.result(WAIT) for answer in last] == ["gg", "hh"]
    assert held.done == [["a"], ["b", "d", "e", "g", "h"]]


def test_what_nobody_wants_is_not_done(held):
    gone = [held.submit(name) for name in "bc"]
    assert all(answer.cancel() for answer in gone)
    assert not held.first.cancel()  # is being done
    held.may_go.set()
    held.close()
    assert held.done == [["a"]]


def test_closing_does_what_waits(held):
    answers = [held.submit(name, 4) for name in "bcd"]
    held.may_go.set()
    held.close()
    assert [answer.result(0) for answer in answers] == ["bb", "cc", "dd"]


def jobs_of(*requests, observe=lambda texts: None):
    jobs = [Job(Texts(*request), Future()) for request in requests]
    translate_together(jobs, observe)
    return [job.answer for job in jobs]


def best(answer):
    return [[(one.text, one.score) for one in found] for found in answer.result(0)]


def test_each_job_gets_its_own_and_what_is_asked_alike_is_one_call():
    one, other = Shouting(), Shouting()
    sizes = []
    answers = jobs_of(
        (one, ["a", "bb"], 1), (other, ["ccc"], 1), (one, ["dddd"], 3), (one, ["eeeee"], 1),
        observe=sizes.append,
    )  # fmt: skip
    assert sorted(sizes) == [1, 1, 3]
    assert [best(answer) for answer in answers] == [
        [[shouted("a")], [shouted("bb")]],
        [[shouted("ccc")]],
        [[shouted("dddd", rank) for rank in range(3)]],
        [[shouted("eeeee")]],
    ]
    assert one.calls == [(["a", "bb", "eeeee"], 1), (["dddd"], 3)]
    assert other.calls == [(["ccc"], 1)]


def test_a_wrong_text_is_an_error_of_its_job_alone():
    translator = Shouting()
    answers = jobs_of(
        (translator, ["a", "b"], 1),
        (translator, ["c", "d", "too long"], 1),
        (translator, ["long"], 1),
        (translator, ["e"], 1),
    )
    assert best(answers[0]) == [[shouted("a")], [shouted("b")]]
    assert best(answers[3]) == [[shouted("e")]]
    errors = [answers[1].exception(0), answers[2].exception(0)]
    assert [(type(error), error.index) for error in errors] == [(WrongText, 2), (WrongText, 0)]
    assert "'too long'" in str(errors[0])


def test_another_error_is_one_of_the_jobs_that_fail_alone():
    translator = Shouting()
    answers = jobs_of(
        (translator, ["a"], 2), (translator, ["b", "crash"], 2), (translator, ["c"], 2)
    )
    assert best(answers[0]) == [[shouted("a"), shouted("a", 1)]]
    assert best(answers[2]) == [[shouted("c"), shouted("c", 1)]]
    assert isinstance(answers[1].exception(0), ArithmeticError)
