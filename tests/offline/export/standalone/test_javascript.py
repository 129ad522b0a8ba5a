"""A standalone model answers in JavaScript's onnxruntime what the predictor answers in Python."""

import pytest

from demur.service import Predictor
from tests.support.javascript import javascript_answers, needs_javascript
from tests.support.standalone import BUNDLES, Exported, example_batches, same_prediction

pytestmark = [
    pytest.mark.slow,
    needs_javascript,
    pytest.mark.filterwarnings("ignore"),  # the exporter's own deprecations, in the bundles that are fitted
]


@pytest.mark.parametrize("exported", BUNDLES, indirect=True)
def test_it_answers_as_the_predictor_does(exported: Exported) -> None:
    predictor = Predictor.load(exported.bundle)
    batches = example_batches(predictor.manifest.input)
    (answers,) = javascript_answers([(exported.model, batches)])
    for found, inputs in zip(answers, batches, strict=True):
        same_prediction(found, predictor.predict(inputs))
