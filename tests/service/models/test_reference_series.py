"""The calibration data as cumulative shares: exact, in the buckets of the served histograms, gone with the model."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from probity.service.bundle import read_bundle
from probity.service.inference.predictor import Predictor
from probity.service.maths.outcomes import ClassOutcomes
from probity.service.maths.rejection import RejectionRule
from probity.service.models.metrics import ModelMetrics
from probity.service.models.reference_series import LEAST_SHARE, ReferenceSeries, cumulative_shares, merged_bins
from probity.service.monitoring.metrics import Metrics
from tests.reference import left_out_p_value
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.outcomes import keeping_outcomes

Series = dict[tuple[str, ...], float]


def series(registry: CollectorRegistry, name: str, *labels: str) -> Series:
    return {
        tuple(sample.labels.get(label, "") for label in labels): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def shares(registry: CollectorRegistry) -> Series:
    return series(registry, "probity_reference_share", "quantity", "le")


def bins(registry: CollectorRegistry) -> Series:
    return series(registry, "probity_reference_bin_share", "quantity", "below", "le")


def classes(registry: CollectorRegistry) -> Series:
    return series(registry, "probity_reference_class_share", "label")


def announced(bundle: Path) -> tuple[CollectorRegistry, ModelMetrics, Predictor]:
    registry, predictor = CollectorRegistry(), Predictor.load(bundle)
    model = ModelMetrics(Metrics(registry), predictor)
    model.announce()
    return registry, model, predictor


@pytest.mark.parametrize("scores", [[1.0, 2.0, 3.0], [0.0] * 5, [1.0, 1.0, 2.0, 2.0, 9.0]])
def test_left_out_p_values(scores: list[float]) -> None:
    rule = RejectionRule(np.array(scores), 0.05)
    expected = sorted(left_out_p_value(scores, i) for i in range(len(scores)))
    assert rule.left_out_p_values.tolist() == expected


def test_shares_are_those_of_the_calibration_scores(classification: Synthetic) -> None:
    registry, _, predictor = announced(classification.path)
    p_values = predictor.rule.left_out_p_values
    values = {"ood_score": predictor.rule.scores.tolist(), "ood_p_value": p_values.tolist()}
    found = shares(registry)
    assert {quantity for quantity, _ in found} == values.keys()
    for (quantity, le), share in found.items():
        of = values[quantity]
        assert share == sum(value <= float(le) for value in of) / len(of)


def test_classes_have_the_shares_of_the_calibration_data(classification: Synthetic, tmp_path: Path) -> None:
    registry, model, predictor = announced(keeping_outcomes(classification.path, tmp_path / "bundle", 80))
    outcomes = read_bundle(predictor.path).calibration.outcomes
    assert isinstance(outcomes, ClassOutcomes)
    predicted = outcomes.calibration.predicted.tolist()
    assert classes(registry) == {(f"class {k}",): predicted.count(k) / 80 for k in range(3)}
    model.withdraw()
    assert classes(registry) == {}


def test_shares_have_the_buckets_of_the_served_histograms(classification: Synthetic) -> None:
    registry, _, _ = announced(classification.path)
    for quantity in ("ood_score", "ood_p_value"):
        served = {le for (le,) in series(registry, f"probity_{quantity}_bucket", "le")}
        assert {le for of, le in shares(registry) if of == quantity} == served


def test_bins_are_adjacent_and_hold_all_of_the_reference(classification: Synthetic) -> None:
    registry, _, _ = announced(classification.path)
    cumulative = shares(registry)
    for quantity in ("ood_score", "ood_p_value"):
        found = [(below, le, share) for (of, below, le), share in bins(registry).items() if of == quantity]
        assert [below for below, _, _ in found] == ["", *(le for _, le, _ in found[:-1])]
        assert found[-1][1] == "+Inf"
        assert math.fsum(share for _, _, share in found) == pytest.approx(1)
        for below, le, share in found:
            assert share == pytest.approx(cumulative[quantity, le] - cumulative.get((quantity, below), 0.0))
            assert share >= LEAST_SHARE


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.lists(st.floats(0, 1), max_size=20, unique=True))
def test_every_bin_holds_enough_whatever_the_values(values: list[float], bounds: list[float]) -> None:
    cumulative = cumulative_shares(np.sort(values), sorted(bounds))
    ends = merged_bins(cumulative)
    assert ends == sorted(set(ends))
    assert ends[-1] == len(bounds)
    assert all(np.diff(cumulative[ends], prepend=0.0) >= LEAST_SHARE - 1e-12)


def test_a_bundle_of_the_same_name_and_version_takes_the_place(tmp_path: Path) -> None:
    metrics = Metrics(registry := CollectorRegistry())
    first, second = (
        ReferenceSeries(metrics, ("m", "1"), {"ood_score": (bounds, np.arange(10.0))}, {})
        for bounds in ((1, 2), (2, 3))
    )
    first.announce()
    second.announce()
    assert [le for _, le in shares(registry)] == ["2.0", "+Inf", "3.0"]
    assert shares(registry)["ood_score", "3.0"] == 0.4


def test_series_go_with_the_model(tmp_path: Path) -> None:
    write_linear(tmp_path / "one", outputs=3, spec=FEATURE_SPEC, name="one")
    registry, model, _ = announced(tmp_path / "one")
    assert shares(registry)
    assert bins(registry)
    model.withdraw()
    assert not shares(registry)
    assert not bins(registry)
