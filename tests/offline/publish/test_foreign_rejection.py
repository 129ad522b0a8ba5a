"""What a finished bundle rejects of obvious foreigners: measured by every fit, and a warning where it is little."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from demur.cli import app
from demur.offline import FitConfig, fit_bundle
from demur.offline.data.foreigners import FOREIGN_EXAMPLES, obvious_foreigners
from demur.offline.publish.foreign_rejection import foreign_rejection, rejection_warnings
from demur.service import Predictor
from demur.service.bundle import RejectedShare
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, write_linear, write_tokens
from tests.support.small_fit import CONFIG, batches, network

# the exporter's own deprecations are not ours to mend
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]
SEE_DISTANCE = "let the score see the distance from the training data (added_weights=True, score='default')"
OTHER_LAYERS = "let the distance read other layers (added_weights with their paths), or live with it"
KINDS = ["column-noise", "scaled-by-10", "scaled-by-100", "zeros", "reversed-columns"]


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whose score grows with the size of its inputs."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    data = [(x, x[:, :1] + 0.1 * torch.randn(len(x), 1, generator=generator)) for x, _ in batches(200)]
    config = FitConfig(
        likelihood="regression",
        selection="random",
        subnetwork_size=1.0,
        prior_precision=1.0,
        device="cpu",
        added_weights=False,
    )
    out = tmp_path_factory.mktemp("foreign") / "bundle"
    return fit_bundle(nn.Linear(4, 1), data, out, calibration_loader=data, config=config)


def test_the_manifest_has_the_share_of_each_kind(regression: Path) -> None:
    manifest = Predictor.load(regression).manifest
    assert manifest.rejection is not None
    assert [found.name for found in manifest.rejection] == KINDS
    assert {found.examples for found in manifest.rejection} == {min(FOREIGN_EXAMPLES, manifest.calibration.examples)}
    shares = {found.name: found.share for found in manifest.rejection}
    assert shares["scaled-by-10"] > 0.9
    assert shares["scaled-by-100"] == 1
    assert shares["zeros"] == 0
    assert shares["reversed-columns"] < 0.5
    assert not [text for text in manifest.warnings if text.startswith("of inputs")]


def test_card_and_report_show_them(regression: Path) -> None:
    card = CliRunner().invoke(app, ["inspect", str(regression)]).stdout
    assert "rejected of obviously foreign inputs: column noise" in card
    assert "scaled by 100 100 %" in card
    assert "Obviously foreign inputs" in (regression / "report.html").read_text()


def test_a_bundle_that_rejects_nothing_warns_of_every_kind_that_is_judged(tmp_path: Path) -> None:
    """The score of a network without slope is the same for every input."""
    model = network()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    config = CONFIG.model_copy(update={"added_weights": False})
    fit_bundle(model, batches(60), tmp_path / "bundle", calibration_loader=batches(120, seed=1), config=config)
    manifest = Predictor.load(tmp_path / "bundle").manifest
    assert manifest.rejection is not None
    assert {found.share for found in manifest.rejection} == {0.0}
    found = [text for text in manifest.warnings if text.startswith("of inputs")]
    assert [text.partition(",")[0] for text in found] == [
        "of inputs scaled by 10",
        "of inputs scaled by 100",
    ]
    report = (tmp_path / "bundle" / "report.html").read_text()
    assert "Less than half is rejected of these obviously foreign inputs: scaled by 10, scaled by 100" in report


@pytest.mark.parametrize(
    ("name", "config", "remedy"),
    [
        (
            "noise",
            {"added_weights": False},
            "of inputs that are uniform noise, only 12 % are rejected: the score sees little of them; " + SEE_DISTANCE,
        ),
        (
            "foreign-data",
            {"score": "predictive_entropy"},
            "of inputs of the foreign data, only 12 % are rejected: the score sees little of them; " + SEE_DISTANCE,
        ),
        (
            "constant",
            {"likelihood": "regression", "score": "epistemic_std"},
            SEE_DISTANCE,
        ),
        ("noise", {"score": "distance"}, "; " + OTHER_LAYERS),
        ("scaled-by-10", {}, "; check the range of inputs before the model, or " + OTHER_LAYERS),
        (
            "constant",
            {"likelihood": "regression"},
            "; " + OTHER_LAYERS,
        ),
        (
            "constant",
            {"likelihood": "regression", "added_weights": False},
            "; give a larger uncertainty_budget or more weights (subnetwork_size)",
        ),
        (
            "constant",
            {"likelihood": "regression", "prior_precision": 1.0, "added_weights": False},
            "; give a smaller prior_precision or more weights (subnetwork_size)",
        ),
    ],
)
def test_the_remedy_is_what_was_not_asked_for(name: str, config: dict[str, Any], remedy: str) -> None:
    (text,) = rejection_warnings((RejectedShare(name, 0.12, 100),), FitConfig(**config))
    assert text.endswith(remedy)


def test_half_is_enough_and_some_kinds_are_not_judged() -> None:
    rejection = RejectedShare("noise", 0.5, 100), RejectedShare("zeros", 0.0, 100), RejectedShare("column-noise", 0, 9)
    assert rejection_warnings(rejection, FitConfig()) == []


def test_what_the_network_refuses_counts_as_rejected(tmp_path: Path) -> None:
    """The vocabulary ends below what a hand-written batch asks for."""
    bundle = write_tokens(tmp_path / "tokens")
    found = foreign_rejection(Predictor.load(bundle.path), torch.tensor([[7, 9], [8, 7]]), 0)
    assert found is not None
    assert {one.share for one in found} == {1.0}


def test_shares_are_those_of_the_predictor_on_at_most_100_examples(tmp_path: Path) -> None:
    bundle, inputs = write_linear(tmp_path / "images", outputs=3, spec=IMAGE_SPEC), torch.rand(130, 1, 4, 5)
    found = foreign_rejection(Predictor.load(bundle.path), inputs, 7)
    assert found is not None
    predictor, foreigners = Predictor.load(bundle.path), obvious_foreigners(inputs[:100], 7)
    assert [one.name for one in found] == [*foreigners]
    for one in found:
        assert one.examples == 100
        assert one.share == predictor.predict(foreigners[one.name].numpy()).rejected.mean()


def test_an_input_without_foreigners_has_no_shares_but_of_what_is_given(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "one", outputs=3, spec=FEATURE_SPEC)
    assert foreign_rejection(Predictor.load(bundle.path), torch.rand(5, 1).long(), 0) is None
    given = 5 * torch.randn(300, *FEATURE_SPEC.shape, generator=torch.Generator().manual_seed(0))
    share = float(Predictor.load(bundle.path).predict(given.numpy()).rejected.mean())
    assert 0 < share < 1
    assert foreign_rejection(Predictor.load(bundle.path), torch.rand(5, 1).long(), 0, given) == (
        RejectedShare("foreign-data", share, 300),
    )


@pytest.mark.parametrize(
    ("score", "shift", "rejected"),
    [("default", 0.0, False), ("default", 30.0, True), ("predictive_entropy", 30.0, True)],
)
def test_a_fit_says_what_share_of_the_foreign_data_is_rejected(
    score: str, shift: float, rejected: bool, tmp_path: Path
) -> None:
    """With any score, which they do not choose: of usual inputs that are called foreign, little is."""
    foreign, out = [(x + shift, y) for x, y in batches(41, seed=5)], tmp_path / "bundle"
    config, held_out = CONFIG.model_copy(update={"score": score}), batches(120, seed=1)
    fit_bundle(network(), batches(60), out, calibration_loader=held_out, foreign_loader=foreign, config=config)
    predictor = Predictor.load(out)
    manifest = predictor.manifest
    found = (manifest.rejection or ())[-1]
    assert (found.name, found.examples) == ("foreign-data", 41)
    assert found.share == predictor.predict(torch.cat([x for x, _ in foreign]).numpy()).rejected.mean()
    if score == "default":
        assert (found.share > 0.5) is rejected
    warned = any(text.startswith("of inputs of the foreign data") for text in manifest.warnings)
    assert warned is (found.share < 0.5)
    assert "Foreign data" in (out / "report.html").read_text()
    assert "foreign data" in (out / "README.md").read_text()
    assert f"foreign data {100 * found.share:.0f} %" in CliRunner().invoke(app, ["inspect", str(out)]).stdout


def test_foreign_data_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"foreign_loader: found inputs of shape \(7,\) and torch.float32, expected \(4,\)"
    ):
        fit_bundle(
            network(),
            batches(),
            tmp_path / "b",
            calibration_loader=batches(120),
            foreign_loader=batches(20, features=7),
            config=CONFIG,
        )
