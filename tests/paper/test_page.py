"""Sections of the page on the paper's experiments, from made-up results."""

from typing import Any

import pytest

from paper.gaps import summary as gap_summary
from paper.images.quality import METRICS
from paper.images.summary import (
    ADDED,
    BLOCKS,
    DEFAULT,
    OURS_BY_PAPER,
    PRODUCTS_CHOICE,
    SMALL_TEMPERED,
    TEMPERED,
    TEMPERED_ENSEMBLE,
    summarise,
)
from paper.page import findings, gaps, images, questions
from paper.page.markdown import listed, number, signed, size, table
from paper.page.ordering import EXPLAINED
from paper.page.results import source

ENVIRONMENT = {
    "command": ["python", "-m", "paper", "x"],
    "date": "2026-11-23T10:00:00+00:00",
    "cpu": "a processor",
    "threads": 1,
    "cores": 2,
    "git_commit": "0123456789",
}


AMOUNTS = {"held_out": 1000, "test": 480, "curvature": 2000}


def outcome(log_likelihood: float) -> dict[str, Any]:
    angles = [0, *range(15, 181, 15)]
    metrics = dict.fromkeys(METRICS, 0.5) | {"log_likelihood": log_likelihood}
    return {
        "shifts": {str(angle): metrics for angle in angles},
        "kinds": {str(angle): {"rotation": log_likelihood} for angle in angles[1:]},
        "auroc": {"Fashion-MNIST": 0.9},
        "accuracy_when_rejecting": {"Fashion-MNIST": [0.5] * 20},
        "price": 1.0,
        "bytes": 2_500_000.0,
        "fit_seconds": 12.0,
    }


def result(*seeds: dict[str, float]) -> dict[str, Any]:
    runs = [
        {"seed": number, "methods": {label: outcome(value) for label, value in rows.items()}}
        for number, rows in enumerate(seeds)
    ]
    return {
        "benchmark": "mnist",
        "fast": True,
        "environment": ENVIRONMENT,
        "seconds_in_all": 60.0,
        "published": "rotated_mnist",
        "weights": 9098,
        "scale": {"network": "small CNN", "size": 1000, "train": 9, "epochs": 1, "curvature": 4, "test": 2},
        "summary": summarise(runs, "rotated_mnist"),
        "runs": runs,
    }


def test_one_seed_has_no_spread_and_a_verdict_for_each_method() -> None:
    text = images.section(result({"MAP": -3.0, "ours, Wasserstein": -1.0, "ours, random": -0.5}))
    assert "±" not in text
    assert "* MAP: above at every shift (+2.00 to +2.00 nats; 10 of 10 pairs of a shift and a seed); " in text
    assert "without a shift +2.00." in text
    assert "* ours, random: not above at 45°, 60°" in text
    assert "| MAP | 1 | 2.5 MB | 12 | -3.00 |" in text


def test_several_seeds_have_a_spread_and_a_row_of_one_seed_says_so() -> None:
    found = result(
        {"MAP": -3.0, "ours, Wasserstein": -1.0, "last layer": -1.0}, {"MAP": -2.0, "ours, Wasserstein": -2.5}
    )
    text = images.section(found)
    assert "-2.50 ± 0.71" in text
    assert "| last layer (1 seed) |" in text
    assert "* MAP: above at every shift (+0.75 to +0.75 nats; 10 of 20 pairs of a shift and a seed); " in text
    assert "without a shift +0.75." in text


def test_the_papers_cells_stand_beside_ours() -> None:
    text = images.section(result({"MAP": -3.0, "ours, Wasserstein": -1.0}))
    assert "-1.00 (-1.09; +0.09)" in text
    assert "-3.00 (-1.75; -1.25)" in text


def test_every_network_of_the_questions_has_its_own_number_of_seeds() -> None:
    measured = {"mean": 1.0, "gain": 0.25, "half_width": 0.125, "verdict": "better"}
    rows = [
        {"network": network, "weights": "w", "variant": "v", "seeds": seeds}
        | dict.fromkeys(questions.MEASURES, measured)
        for network, seeds in (("mnist", 6), ("cifar", 3))
    ]
    found = {
        "environment": ENVIRONMENT,
        "seconds_in_all": 1.0,
        "product": "p",
        "verdicts": rows,
        "amounts": AMOUNTS,
        "runs": [
            {"network": network, "weights": "w", "variants": {"v": {"spent": 0.04}}} for network in ("mnist", "cifar")
        ],
        "benchmark": "questions",
        "fast": True,
    }
    text = questions.questions(found)
    assert "### MNIST, 6 seeds" in text
    assert "### CIFAR-10, 3 seeds" in text
    assert "Of 6 comparisons" in text
    assert "**+0.250 ± 0.125**" in text
    assert "| w | v | 0.040 | 1.000 |" in text
    assert "* **v**: ordinary better on MNIST with w and CIFAR-10 with w; shifted better on MNIST with w and" in text


def test_settings_at_an_edge_and_the_second_mean_are_named() -> None:
    rows = {"MAP": -3.0, "ours, Wasserstein": -1.0, findings.LINEARISED: -3.0, findings.SAMPLED: -3.0, "IVON": -3.0}
    found = result(rows | {BLOCKS: -2.0, PRODUCTS_CHOICE: -1.0})
    methods = found["runs"][0]["methods"]
    methods[findings.LINEARISED]["prior_precision"] = 1e6
    methods[findings.SAMPLED]["prior_precision"] = 1234.0
    methods[PRODUCTS_CHOICE]["explanation"] = "gradient in 'head': best of three"
    assert "IVON learnt" not in images.section(found)
    found["summary"]["rows"]["IVON"]["shifts"]["0"]["error"]["mean"] = 0.6
    text = images.section(found)
    assert "in 1 of 1 runs the best lambda is the largest one tried" in text
    assert "the best lambda on held-out images is 1,234;" in text
    assert "60.0 % errors without a shift, and MAP 50.0 %" in text
    assert "* auto, at most 3 passes: chose gradient in 'head'." in text
    both = images.section(
        result({"ours, Wasserstein": -1.0, BLOCKS: -2.0, findings.ENSEMBLE: -3.0, TEMPERED_ENSEMBLE: -1.5})
    )
    assert "above the ensemble of 5 at 10 of 10 strong shifts, +1.00 nats without a shift; above the ensemble" in both
    assert "within the budget at 0 of 10 strong shifts, -0.50 nats without a shift; 1 passes" in both
    assert "it is so here" in both


def test_one_network_under_many_kinds_is_judged_over_these() -> None:
    found = result({"MAP": -3.0, "ours, Wasserstein": -1.0, "dropout": -1.0})
    kinds = {"fog": 0.0, "frost": 0.5, "gaussian_noise": -0.5}
    shifted = {"MAP": -3.0, "ours, Wasserstein": -1.0, "dropout": -1.0}
    for label, one in found["runs"][0]["methods"].items():
        noise = {"fog": 0.1, "frost": -0.2, "gaussian_noise": 0.1} if label == "dropout" else dict.fromkeys(kinds, 0.0)
        own = {kind: shifted[label] + value + noise[kind] for kind, value in kinds.items()}
        one["kinds"] = dict.fromkeys(one["kinds"], own)
    text = images.section(found)
    assert "* MAP: above (+2.000 ± 0.000 nats); without a shift +2.00." in text
    assert "* dropout: no different beyond the noise (0.000 ± 0.430 nats)" in text
    assert "over 3 kinds of corruption)" in text


def test_what_explains_the_order_is_said_where_its_rows_are_there() -> None:
    rows = dict.fromkeys(EXPLAINED, -2.0) | {"ours, random": -1.5}
    text = images.section(result(rows))
    assert "random selection comes to -1.50 with the same budget, a difference of +0.50, and to -2.00" in text
    assert "What explains it" not in images.section(result({"MAP": -3.0, "ours, Wasserstein": -1.0}))


def test_steps_are_paired_and_say_what_is_accepted_though_it_is_wrong() -> None:
    def rejection(share: float, wrong: float | None) -> dict[str, Any]:
        angles = [str(angle) for angle in (0, *range(15, 181, 15))]
        foreign = {"Fashion-MNIST": share}
        return {
            "all": dict.fromkeys(angles, share),
            "wrong": dict.fromkeys(angles, wrong),
            "foreign": foreign,
            "auroc": foreign,
        }

    seeds = [
        {OURS_BY_PAPER: -1.0, TEMPERED: -1.5, SMALL_TEMPERED: -2.0, ADDED: -1.75, DEFAULT: -1.75},
        {OURS_BY_PAPER: -1.0, TEMPERED: -1.5, SMALL_TEMPERED: -3.0, ADDED: -2.25, DEFAULT: -2.25},
    ]
    found = result(*seeds)
    for run in found["runs"]:
        for label, wrong in ((SMALL_TEMPERED, 0.25), (DEFAULT, 0.75)):
            run["methods"][label] |= {"rejection": rejection(0.5, wrong), "share": 0.5}
    found["summary"] = summarise(found["runs"], "rotated_mnist")
    text = images.section(found)
    assert "| the paper's subnetwork, over a temperature, 0.05 nats each | +0.500 ± 0.000 |" in text
    # Student's t of two seeds whose gains are 0.25 and 0.75
    assert "| added weights, over a temperature, 0.005 nats each | +0.500 ± 3.177 |" in text
    assert "| both, over added weights alone, 0.005 nats each | 0.000 ± 0.000 |" in text
    assert "At 180° 50 % of the answers are wrong, and the default rejects 75 % of these" in text
    assert "What each step adds" not in images.section(result({"MAP": -3.0, "ours, Wasserstein": -1.0}))


def test_a_gap_has_gains_and_no_rejection_without_a_score() -> None:
    def method(log_likelihood: float, rejected: float | None, **facts: float) -> dict[str, Any]:
        part = {"log_likelihood": log_likelihood, "coverage": 0.9, "width": 2.0, "squared_error": 1.0}
        parts = {"ordinary": part | {"rejected": rejected}, "gap": part | {"rejected": rejected, "squared_error": 3.0}}
        return parts | {"auroc": rejected, "facts": facts}

    methods = {
        gap_summary.BASELINE: method(-2.0, None),
        gaps.ADDED: method(-1.0, 0.5, prior_variance=2.0),
        gaps.BOTH: method(-1.5, 0.5, prior_variance=2.0),
        gaps.LIKELIEST: method(-2.0, 0.5, prior_variance=0.0),
    }
    runs = [{"problem": name, "split": 0, "methods": methods} for name in ("matern_1d", "wine")]
    found = {
        "summary": gap_summary.summarise(runs),
        "environment": ENVIRONMENT,
        "seconds_in_all": 1.0,
        "benchmark": "gaps",
        "fast": True,
    }
    text = gaps.section(found)
    assert "| noise alone | -2.000 | -2.000 |  | 90 % | 90 % | 2.00 | 2.00 |  |  |  |" in text
    assert "| both (default) | -1.500 | -1.500 | +0.500 | 90 % | 90 % | 2.00 | 2.00 | 50 % | 50 % | 0.500 |" in text
    assert "`both (default)` against the noise alone, inside the gap: +0.500 on wine nats" in text
    assert "is none: matern_1d 1 of 1; wine 1 of 1." in text
    assert "the squared error in the gap is 3.0 times that of ordinary rows" in text


def test_the_source_names_the_whole_command_and_every_commit() -> None:
    runs = [{"a": {"commit": "aaaaaaaaa"}}, [{"commit": "bbbbbbbbb"}]]
    environment = ENVIRONMENT | {"command": ["python", "-m", "paper", "x", "--rows", "MAP", "--fast"]}
    text = source({"environment": environment, "seconds_in_all": 1.0, "seconds_of_work": 120.0, "runs": runs})
    assert text.startswith("`python -m paper x --fast`, 2 minutes of work")
    assert "commits `aaaaaaa`, `bbbbbbb`" in text
    assert "commit `0123456`" in source({"environment": ENVIRONMENT, "seconds_in_all": 1.0})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (number(-0.001), "0.00"),
        (signed(0.5), "+0.50"),
        (signed(-0.5), "-0.50"),
        (signed(0.0), "0.00"),
        (size(999), "999 B"),
        (size(7.2e9), "7.2 GB"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (table(["x", "y"], [["a", "1"]]), "| x | y |\n| --- | ---: |\n| a | 1 |\n"),
    ],
)
def test_numbers_and_lists_read_well(found: str, expected: str) -> None:
    assert found == expected
