"""What a default fit of a table learns of mistakes: to name them, at no price for anything else that is foreign."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn import functional

from demur.offline import FitConfig, fit_bundle
from demur.offline.laplace import inference
from demur.service.codec.answers import predictions_json
from demur.service.inference.predictor import Predictor
from demur.service.maths.scores import MISTAKES

pytestmark = pytest.mark.usefixtures("short_fits")
TRAIN, HELD_OUT = 184, 200
Data = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def data() -> tuple[Data, Data, Tensor]:
    """To train, held out, and others."""
    table = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(table.data))
    x, y = table.data[order], torch.tensor(table.target[order])
    x = torch.tensor((x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0), dtype=torch.float32)
    end = TRAIN + HELD_OUT
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:end], y[TRAIN:end]), x[end:]


@pytest.fixture(scope="module")
def network(data: tuple[Data, Data, Tensor]) -> nn.Module:
    torch.manual_seed(0)
    (x, y), *_ = data
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    for _ in range(180):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def fitted(model: nn.Module, data: tuple[Data, Data, Tensor], out: Path) -> Predictor:
    train, held_out, _ = data
    return Predictor.load(fit_bundle(model, train, out, calibration_loader=held_out, config=FitConfig(device="cpu")))


def test_few_examples_teach_mistakes_and_no_other_input_is_accepted_for_it(
    network: nn.Module, data: tuple[Data, Data, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likenesses of the examples that a direction is fitted to are smaller than those of new ones: taken for how
    ordinary ones are distributed, they let a threshold rise beyond what any distance reaches."""
    found, ordinary = fitted(network, data, tmp_path / "told"), data[2].numpy()
    monkeypatch.setattr(inference, "possible_mistakes", lambda *_: {})
    without = fitted(network, data, tmp_path / "without")
    assert "columns-reversed" in found.manifest.mistakes
    assert not without.manifest.mistakes
    named = found.predict(ordinary).mistake
    assert named is not None
    assert np.mean(named >= 0) < 0.02
    near = 0.01 * np.random.default_rng(0).normal(size=ordinary.shape)
    for inputs in (ordinary, 2 * ordinary, 10 * ordinary, 100 * ordinary, near):
        shares = [predictor.predict(inputs.astype(np.float32)).rejected.mean() for predictor in (found, without)]
        assert shares[1] - 0.01 <= shares[0] <= shares[1] + 0.05


def test_what_is_named_is_rejected_and_named_once(
    network: nn.Module, data: tuple[Data, Data, Tensor], tmp_path: Path
) -> None:
    predictor = fitted(network, data, tmp_path / "bundle")
    prediction = predictor.predict(data[2].flip(1).numpy())
    assert prediction.mistake is not None
    named = prediction.mistake >= 0
    assert named.mean() > 0.3
    assert prediction.rejected[named].all()
    words = {*MISTAKES.values()}
    for answer, place in zip(predictions_json(prediction, predictor.decision), prediction.mistake, strict=True):
        said = {some for some in words if some in (answer["reason"] or "")}
        assert said == ({MISTAKES[predictor.manifest.mistakes[place]]} if place >= 0 else set())
