"""Coverage by fifths, one fifth and output at a time."""

import numpy as np
import pytest

from demur.offline.evaluation.fifths import LEAST_EXAMPLES, fifths_covered
from demur.service.inference.prediction import Prediction
from demur.service.maths.outcomes import RegressionOutcomes


def predicted(count: int) -> tuple[Prediction, np.ndarray]:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(count, 2)), rng.uniform(0.5, 2, (count, 2))
    none = np.zeros(count)
    found = Prediction(mean, std, none, none, none.astype(bool), std=std)
    return found, mean + std * rng.normal(size=mean.shape)


@pytest.mark.parametrize("count", [LEAST_EXAMPLES, 503])
def test_equal_a_count(count: int) -> None:
    prediction, targets = predicted(count)
    assert prediction.std is not None
    residuals = np.abs(targets - prediction.mean) / prediction.std
    found = fifths_covered(prediction, targets, RegressionOutcomes(residuals))
    sizes = [len(part) for part in np.array_split(np.arange(count), 5)]
    for k in range(2):
        q = sorted(residuals[:, k])[int(np.ceil(0.95 * (count + 1))) - 1]
        for name, values in (("prediction", prediction.mean), ("width", prediction.std)):
            order, start = sorted(range(count), key=lambda n: values[n, k]), 0
            for fifth, size in enumerate(sizes):
                held = [residuals[n, k] <= q for n in order[start : start + size]]
                assert found[name][fifth, k] == pytest.approx(sum(held) / size)
                start += size


def test_nothing_is_said_of_few_examples_or_of_classes() -> None:
    none, outcomes = np.zeros(200), RegressionOutcomes(np.ones((LEAST_EXAMPLES, 2)))
    assert fifths_covered(*predicted(LEAST_EXAMPLES - 1), outcomes) == {}
    classes = Prediction(np.zeros((200, 2)), np.zeros((200, 2)), none, none, none.astype(bool))
    assert fifths_covered(classes, none, outcomes) == {}
    assert fifths_covered(*predicted(LEAST_EXAMPLES), outcomes, level=0.995) == {}
