"""What a `Predictor` decides by: a policy, and of each task what it has."""

import numpy as np
import pytest
import torch

from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic


def test_a_mapping_is_no_policy(classification: Synthetic) -> None:
    with pytest.raises(TypeError, match=r"policy: found dict, expected a Policy, such as Policy\(false_reject_rate"):
        Predictor.load(classification.path, policy={"false_reject_rate": 0.2})  # type: ignore[arg-type]


def test_a_task_has_sets_or_intervals(classification: Synthetic, regression: Synthetic) -> None:
    for bundle, ask, words in (
        (classification, "intervals", "intervals: found a classification, which has none; ask for members"),
        (regression, "members", "members: found a bundle without prediction sets, as of a regression; ask for inter"),
    ):
        predictor = Predictor.load(bundle.path)
        prediction = predictor.predict(np.zeros((2, *bundle.manifest.input.shape), np.float32))
        with pytest.raises(ValueError, match=words):
            getattr(predictor.decision, ask)(prediction)


def test_a_tensor_with_gradients_is_an_array(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    inputs = torch.ones(2, *classification.manifest.input.shape)
    found = predictor.predict(inputs.requires_grad_())
    np.testing.assert_array_equal(found.score, predictor.predict(inputs.detach().numpy()).score)
