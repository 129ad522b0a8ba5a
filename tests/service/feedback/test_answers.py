"""service/feedback/answers.py: when an answer counts as right."""

import numpy as np

from probity.service.feedback.answers import Answers, class_outcomes, interval_outcomes

NAN = np.nan


def test_a_class_is_right_or_wrong_or_not_known() -> None:
    answers = Answers(np.zeros(3, np.uint8), np.array([[2, 0.9], [0, 0.4], [1, 0.8]]))
    found = class_outcomes(answers, np.array([2.0, 1.0, NAN]))
    np.testing.assert_array_equal(found.correct, [1, 0, NAN])
    assert found.confidence.tolist() == [0.9, 0.4, 0.8]
    assert found.known.tolist() == [True, True, False]
    assert not found.squared_error.any()


def test_an_interval_holds_the_truth_of_some_outputs() -> None:
    mean, low, high = [1.0, 2.0], [0.0, 1.5], [2.0, 2.5]
    answers = Answers(np.zeros(4, np.uint8), np.array([[*mean, *low, *high]] * 4))
    found = interval_outcomes(answers, np.array([[0.0, 2.5], [1.0, 4.0], [5.0, 5.0], [NAN, 2.0]]), 0.9)
    np.testing.assert_array_equal(found.correct, [1, 0.5, 0, NAN])
    np.testing.assert_allclose(found.squared_error[:3], [(1 + 0.25) / 2, 4 / 2, (16 + 9) / 2])
    assert found.confidence.tolist() == [0.9] * 4


def test_nothing_is_known_of_an_answer_without_an_interval() -> None:
    answers = Answers(np.array([2], np.uint8), np.array([[1.0, NAN, NAN]]))
    assert not interval_outcomes(answers, np.array([[1.0]]), 0.9).known.any()
