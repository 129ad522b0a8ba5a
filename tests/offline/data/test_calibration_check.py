"""Calibration data that are not what they should be are told, and those that are raise no doubt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.data.calibration_check import CalibrationCheck, quality_warnings, target_warnings
from demur.offline.data.held_out import HeldOut
from demur.offline.data.input_range import RangeMeter
from demur.offline.data.likelihood import Classification, Likelihood, Multilabel, Regression
from demur.service.bundle import read_manifest


def drawn(count: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def doubts(train: Tensor, held_out: Tensor) -> list[str]:
    check = CalibrationCheck(HeldOut(held_out, torch.zeros(len(held_out))))
    batches = [(part, torch.zeros(len(part))) for part in train.split(17)]
    ranges = RangeMeter()
    seen = list(check.watch(ranges.watch(batches)))
    assert all(found[0] is given[0] for found, given in zip(seen, batches, strict=True))
    return check.warnings(ranges.ends)


def test_other_data_of_the_same_kind_raise_no_doubt() -> None:
    assert doubts(drawn(200, 0), drawn(100, 1)) == []
    few_rows = torch.randint(0, 2, (300, 3), generator=torch.Generator().manual_seed(0)).float()
    assert doubts(few_rows, few_rows[:100]) == []
    assert doubts(few_rows.long(), few_rows.long()[:100]) == []


@pytest.mark.parametrize("held_out", [drawn(50, 1).repeat(3, 1), drawn(50, 1)[torch.arange(150) % 50]])
def test_copies_among_the_calibration_examples(held_out: Tensor) -> None:
    """As of a sampler with replacement, or of two workers that each read all."""
    (doubt,) = doubts(drawn(200, 0), held_out)
    assert doubt.startswith("of 150 calibration examples only 50 are different: each copy counts")


def test_examples_of_the_training_data() -> None:
    train = drawn(200, 0)
    (whole,) = doubts(train, train[:50])
    assert whole.startswith("100 % of the calibration examples are in the training data: the network knows them")
    (part,) = doubts(train, torch.cat([train[:20], drawn(80, 1)]))
    assert part.startswith("20 % of the calibration examples")
    assert doubts(train, torch.cat([train[:5], drawn(95, 1)])) == []


@pytest.mark.parametrize("scale", [1 / 255, 255.0])
def test_another_scale(scale: float) -> None:
    (text,) = doubts(drawn(200, 0), drawn(100, 1, scale))
    assert text.startswith("the inputs of the calibration data are between ")
    assert text.endswith("scale both in the same way")


TARGETS: dict[str, tuple[Any, Likelihood, str | None]] = {
    "classes": ([0, 1, 1], Classification(2), None),
    "one class": ([1, 1, 1], Classification(2), "all calibration examples are of class 1: the data may be sorted"),
    "values": ([[0.5], [1.5]], Regression(1), None),
    "one value": ([[0.5], [0.5]], Regression(1), r"all calibration examples are of the value \[0.5\]"),
    "labels": ([[0.0, 1.0], [1.0, 0.0]], Multilabel(2), None),
    "an absent class": ([0, 2] * 15, Classification(3), "no calibration example is of class 1: the threshold"),
    "few of many classes": ([0, 1, 2], Classification(1000), None),
    "one label": ([[0.0, 1.0], [1.0, 1.0]], Multilabel(2), "all calibration examples are alike in label 1"),
}


@pytest.mark.parametrize(("targets", "likelihood", "words"), TARGETS.values(), ids=TARGETS)
def test_targets_that_are_all_the_same(targets: Any, likelihood: Likelihood, words: str | None) -> None:
    found = target_warnings(np.array(targets), likelihood)
    assert len(found) == (words is not None)
    if words is not None:
        with pytest.raises(ValueError, match=words):
            raise ValueError(found[0])


# Of a classification, the log-likelihood; of a regression, the means.
QUALITY: dict[str, tuple[Any, Any, Likelihood, bool]] = {
    "classes": (-1.0, [0, 1, 2], Classification(3), False),
    "guessed classes": (-1.2, [0, 1, 2], Classification(3), True),
    "labels": (-1.3, [[0.0, 1.0]], Multilabel(2), False),
    "guessed labels": (-1.4, [[0.0, 1.0]], Multilabel(2), True),
    "values": ([[-0.1], [0.1]], [[-1.0], [1.0]], Regression(1), False),
    "guessed values": ([[0.1], [-0.1]], [[-1.0], [1.0]], Regression(1), True),
    "one value": ([[0.0], [3.0]], [[1.0], [1.0]], Regression(1), False),
    "the smaller of two": ([[-0.5, 1000.0], [0.4, 2000.0]], [[0.2, 1000.0], [-0.2, 2000.0]], Regression(2), True),
}


@pytest.mark.parametrize(("known", "targets", "likelihood", "guessed"), QUALITY.values(), ids=QUALITY)
def test_a_network_that_guesses(known: Any, targets: Any, likelihood: Likelihood, guessed: bool) -> None:
    regression = isinstance(likelihood, Regression)
    metrics = {} if regression else {"calibration_log_likelihood_map": known}
    found = quality_warnings(metrics, np.array(known) if regression else np.zeros(0), np.array(targets), likelihood)
    assert [text.split(":")[0] for text in found] == (
        ["the network predicts the calibration data no better than a guess"] * guessed
    )


@pytest.mark.usefixtures("without_export")
def test_a_fit_keeps_them_in_the_manifest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, said = drawn(100, 0), list[str]()
    config = FitConfig(added_weights=False, prior_precision=1.0, false_reject_rate=0.1, temperature=1.0)
    one_class = x, torch.zeros(100, dtype=torch.int64)
    out = tmp_path / "bundle"
    network = nn.Linear(4, 2)
    nn.init.constant_(network.bias[1:], 3.0)  # it prefers the other class
    fit_bundle(network, one_class, out, calibration_loader=one_class, config=config, say=said.append)
    warnings = read_manifest(out)[0].warnings
    assert said[0].startswith("warning: all calibration examples are of class 0")
    assert [f"warning: {text}" for text in warnings] == said[-len(warnings) :]
    assert [text[:40] for text in warnings if "calibration" in text] == [
        "all calibration examples are of class 0:",
        "100 % of the calibration examples are in",
        "the network predicts the calibration dat",
    ]


@pytest.mark.usefixtures("without_export")
def test_without_lines_warnings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    config = FitConfig(added_weights=False, prior_precision=1.0, temperature=1.0)
    data = drawn(100, 0), torch.arange(100) % 2
    fit_bundle(nn.Linear(4, 2), data, tmp_path / "bundle", calibration_loader=data, config=config)
    assert any("of the calibration examples are in the training data" in record.message for record in caplog.records)
    caplog.clear()
    fit_bundle(nn.Linear(4, 2), data, tmp_path / "told", calibration_loader=data, config=config, say=lambda _: None)
    assert not caplog.records


def test_names_are_used_where_there_are_some() -> None:
    targets, names = np.zeros(60, np.int64), ["cat", "dog"]
    named, unnamed = (target_warnings(targets, Classification(2), known)[0] for known in (names, None))
    assert named.startswith("all calibration examples are of class 'cat'")
    assert unnamed.startswith("all calibration examples are of class 0")
