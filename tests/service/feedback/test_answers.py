"""service/feedback/answers.py: answers survive their bytes, what is none is refused, and when an answer is right."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from demur.service.feedback.answers import Decision, layout, outcomes_of, parse_answers
from demur.service.format.manifest import Task

NAN = np.nan
TASKS: tuple[Task, ...] = get_args(Task)
FINITE = st.floats(-1e150, 1e150)
CONFIDENCE = st.floats(0, 1, width=32)


@st.composite
def answers_of_any_task(draw: st.DrawFn) -> tuple[Task, int, Any]:
    """A task, its outputs, and answers to some examples."""
    task, outputs, examples = draw(st.sampled_from(TASKS)), draw(st.integers(1, 300)), draw(st.integers(1, 5))
    answers = np.zeros(examples, layout(task, outputs))
    answers["decision"] = draw(arrays(np.uint8, examples, elements=st.sampled_from(Decision)))
    if task == "regression":
        mean = draw(arrays(np.float64, (examples, outputs), elements=FINITE))
        answers["mean"], answers["low"], answers["high"] = mean, mean - 1, mean + 1
    else:
        answers["confidence"] = draw(arrays(np.float32, examples, elements=CONFIDENCE))
    if task == "classification":
        answers["class"] = draw(arrays(np.int64, examples, elements=st.integers(0, outputs - 1)))
    if task == "multilabel":
        answers["labels"] = np.packbits(draw(arrays(bool, (examples, outputs))), axis=1)
    return task, outputs, answers


@given(answers_of_any_task())
def test_answers_survive_their_bytes(made: tuple[Task, int, Any]) -> None:
    task, outputs, answers = made
    found = parse_answers(answers.tobytes(), task, outputs)
    for field in answers.dtype.names:
        np.testing.assert_array_equal(found[field], answers[field])


@given(st.sampled_from(TASKS), st.integers(1, 70_000), st.binary(max_size=100))
def test_any_bytes_are_answers_or_refused(task: Task, outputs: int, data: bytes) -> None:
    try:
        found = parse_answers(data, task, outputs)
    except ValueError:
        return
    assert found.tobytes() == data
    assert len(found)
    truths = np.zeros((len(found), 1 if task == "classification" else outputs))
    outcomes = outcomes_of(found, truths, 0.9)
    assert ((outcomes.confidence >= 0) & (outcomes.confidence <= 1)).all()


@pytest.mark.parametrize(
    ("field", "value"), [("decision", 3), ("class", 10), ("confidence", 1.5), ("confidence", -0.1), ("confidence", NAN)]
)
def test_answers_that_no_classification_gives(field: str, value: float) -> None:
    answers = np.zeros(2, layout("classification", 10))
    answers["class"] = 9
    parse_answers(answers.tobytes(), "classification", 10)
    answers[field][1] = value
    with pytest.raises(ValueError, match="found answers that a classification does not give"):
        parse_answers(answers.tobytes(), "classification", 10)


def test_a_mean_is_a_number() -> None:
    answers = np.zeros(2, layout("regression", 3))
    answers["mean"][1, 2] = np.inf
    with pytest.raises(ValueError, match="found answers that a regression does not give"):
        parse_answers(answers.tobytes(), "regression", 3)


@pytest.mark.parametrize(
    ("task", "outputs", "size"),
    [
        ("classification", 10, 6),
        ("classification", 1000, 7),
        ("classification", 70_000, 9),
        ("multilabel", 20, 8),
        ("regression", 1, 25),
    ],
)
def test_bytes_of_an_example(task: Task, outputs: int, size: int) -> None:
    assert layout(task, outputs).itemsize == size


def test_a_class_is_right_or_wrong_or_not_known() -> None:
    answers = np.zeros(3, layout("classification", 3))
    answers["class"], answers["confidence"] = [2, 0, 1], [0.875, 0.5, 0.75]
    found = outcomes_of(answers, np.array([[2.0], [1.0], [NAN]]), 0.9)
    np.testing.assert_array_equal(found.correct, [1, 0, NAN])
    assert found.confidence.tolist() == [0.875, 0.5, 0.75]
    assert found.known.tolist() == [True, True, False]
    assert not found.squared_error.any()


def test_all_labels_of_an_example_are_right() -> None:
    answers, said = np.zeros(3, layout("multilabel", 9)), np.eye(3, 9) + np.eye(3, 9, 6)
    answers["labels"], answers["confidence"] = np.packbits(said == 1, axis=1), 0.5
    truths = said.copy()
    truths[1, 0] = 1
    truths[2] = NAN
    found = outcomes_of(answers, truths, 0.9)
    np.testing.assert_array_equal(found.correct, [1, 0, NAN])
    assert found.confidence.tolist() == [0.5] * 3


def test_an_interval_holds_the_truth_of_some_outputs() -> None:
    answers = np.zeros(4, layout("regression", 2))
    answers["mean"], answers["low"], answers["high"] = [1.0, 2.0], [0.0, 1.5], [2.0, 2.5]
    found = outcomes_of(answers, np.array([[0.0, 2.5], [1.0, 4.0], [5.0, 5.0], [NAN, 2.0]]), 0.9)
    np.testing.assert_array_equal(found.correct, [1, 0.5, 0, NAN])
    np.testing.assert_allclose(found.squared_error[:3], [(1 + 0.25) / 2, 4 / 2, (16 + 9) / 2])
    assert found.confidence.tolist() == [0.9] * 4
