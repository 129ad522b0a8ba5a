"""Sections of the page on the paper's experiments, from made-up results."""

from typing import Any

import pytest

from benchmarks.core.markdown import as_csv, listed, number, percent, signed, table
from paper.gaps import summary as gap_summary
from paper.images.quality import METRICS
from paper.images.summary import (
    ADDED,
    DEFAULT,
    OURS_BY_PAPER,
    PAPERS_RULE,
    RANDOM,
    SMALL_TEMPERED,
    TEMPERED,
)
from paper.page import images, regression
from paper.page.results import frame

ENVIRONMENT = {
    "command": ["python", "-m", "paper", "x"],
    "date": "2026-11-23T10:00:00+00:00",
    "cpu": "a processor",
    "threads": 1,
    "cores": 2,
    "git_commit": "0123456789",
}


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
    }


def result(*seeds: dict[str, float]) -> dict[str, Any]:
    runs = [
        {"seed": number, "methods": {label: outcome(value) for label, value in rows.items()}}
        for number, rows in enumerate(seeds)
    ]
    return {
        "stem": "mnist_fast",
        "environment": ENVIRONMENT,
        "seconds_in_all": 60.0,
        "published": "rotated_mnist",
        "weights": 9098,
        "scale": {"network": "small CNN", "size": 1000, "train": 9, "epochs": 1, "curvature": 4, "test": 2},
        "runs": runs,
    }


def text_of(*seeds: dict[str, float]) -> str:
    return images.section(result(*seeds)).text


def test_one_seed_has_no_spread_and_a_verdict_for_each_method() -> None:
    text = text_of({"MAP": -3.0, OURS_BY_PAPER: -1.0, RANDOM: -0.5})
    assert "±" not in text
    assert f"* `{OURS_BY_PAPER}` under strong shift is above `MAP`; not above `{RANDOM}` (-0.50 to -0.50)." in text
    assert "| MAP | 1 | -3.000 | -3.000 | 0.900 |" in text


def test_several_seeds_are_averaged_and_a_row_of_one_seed_says_so() -> None:
    text = text_of({"MAP": -3.0, OURS_BY_PAPER: -1.0, "last layer": -1.0}, {"MAP": -2.0, OURS_BY_PAPER: -2.5})
    assert "| MAP | 1 | -2.500 | -2.500 | 0.900 |" in text
    assert "| last layer (1 of the seeds) |" in text
    assert "is above `MAP`." in text


def test_the_papers_cells_stand_beside_ours() -> None:
    tables = images.section(result({"MAP": -3.0, OURS_BY_PAPER: -1.0, "last layer": -2.0})).tables
    assert list(tables) == ["mnist_fast", "mnist_fast_methods", "mnist_fast_gains"]
    cells = {
        row["method"]: (row["log_likelihood"], row["log_likelihood_in_the_paper"])
        for row in tables["mnist_fast"]
        if row["shift"] == 45
    }
    assert cells == {"MAP": (-3.0, -1.75), OURS_BY_PAPER: (-1.0, -1.09), "last layer": (-2.0, None)}
    won = [(row["against"], row["shift"], row["gain"], row["won"]) for row in tables["mnist_fast_gains"]]
    assert won == [("MAP", angle, 2.0, 1) for angle in range(45, 181, 15)]
    methods = {row["method"]: row for row in tables["mnist_fast_methods"]}
    assert methods["MAP"]["auroc_FashionMNIST_in_the_paper"] == 0.72
    assert methods["last layer"]["accuracy_after_rejecting_half"] == 0.5


def test_tables_have_five_digits_and_empty_cells() -> None:
    assert as_csv([{"a": 1.23456789, "b": None}, {"a": 2, "b": "x, y"}]) == 'a,b\n1.2346,\n2,"x, y"\n'


def test_settings_at_an_edge_are_named() -> None:
    rows = {"MAP": -3.0, OURS_BY_PAPER: -1.0, images.LINEARISED: -3.0, images.SAMPLED: -3.0, "IVON": -3.0}
    found = result(rows)
    methods = found["runs"][0]["methods"]
    methods[images.LINEARISED]["prior_precision"] = 1e6
    methods[images.SAMPLED]["prior_precision"] = 1234.0
    assert "IVON learnt" not in images.section(found).text
    methods["IVON"]["shifts"] = methods["IVON"]["shifts"] | {"0": methods["IVON"]["shifts"]["0"] | {"error": 0.6}}
    text = images.section(found).text
    assert "in 1 of 1 runs the best lambda is the largest one tried" in text
    assert "the best lambda on held-out images is 1,234;" in text
    assert "60.0 % errors without a shift, and MAP 50.0 %" in text


def test_one_network_under_many_kinds_is_judged_over_these() -> None:
    found = result({"MAP": -3.0, OURS_BY_PAPER: -1.0, "dropout": -1.0})
    kinds = {"fog": 0.0, "frost": 0.5, "gaussian_noise": -0.5}
    shifted = {"MAP": -3.0, OURS_BY_PAPER: -1.0, "dropout": -1.0}
    for label, one in found["runs"][0]["methods"].items():
        noise = {"fog": 0.1, "frost": -0.2, "gaussian_noise": 0.1} if label == "dropout" else dict.fromkeys(kinds, 0.0)
        own = {kind: shifted[label] + value + noise[kind] for kind, value in kinds.items()}
        one["kinds"] = dict.fromkeys(one["kinds"], own)
    text = images.section(found).text
    assert "is above `MAP`; within the noise of `dropout` (0.00 ± 0.43)." in text


def test_a_row_that_saw_rotation_is_marked() -> None:
    found = result({"MAP": -3.0, DEFAULT: -2.0})
    assert "\\*" not in images.section(found).text
    found["runs"][0]["methods"][DEFAULT]["saw_rotation"] = True
    text = images.section(found).text
    assert f"| {DEFAULT}\\* | 1 |" in text
    assert "leave it out of rankings" in text


def test_what_explains_the_order_is_said_where_its_rows_are_there() -> None:
    text = text_of(dict.fromkeys(images.EXPLAINED, -2.0) | {RANDOM: -1.5, PAPERS_RULE: -2.25})
    assert "from -2.25 (best held-out lambda) to -2.00 nats" in text
    assert "Random selection differs by +0.50 with the same budget, and by +0.25 with the best" in text
    assert "What explains it" not in text_of({"MAP": -3.0, OURS_BY_PAPER: -1.0})


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
    text = images.section(found).text
    assert "* The paper's subnetwork over a temperature at the same 0.05 nats: +0.500 ± 0.000 nats" in text
    # Student's t of two seeds whose gains are 0.25 and 0.75
    assert "* Added weights over a temperature at the same 0.005 nats: +0.500 ± 3.177 nats under strong shift" in text
    assert "* Both over added weights alone: 0.000 ± 0.000 nats" in text
    assert (
        "At 180°, 50 % of the answers are wrong, and the default bundle, at a false-reject rate of 5 %, rejects 75 %"
        in text
    )


def test_a_gap_has_gains_and_no_rejection_without_a_score() -> None:
    def method(log_likelihood: float, rejected: float | None, **facts: float) -> dict[str, Any]:
        part = {"log_likelihood": log_likelihood, "coverage": 0.9, "width": 2.0, "squared_error": 1.0}
        parts = {"ordinary": part | {"rejected": rejected}, "gap": part | {"rejected": rejected, "squared_error": 3.0}}
        return parts | {"auroc": rejected, "facts": facts}

    methods = {
        gap_summary.BASELINE: method(-2.0, None),
        regression.BOTH: method(-1.5, 0.5, prior_variance=2.0),
        regression.LIKELIEST: method(-2.0, 0.5, prior_variance=0.0),
    }
    runs = [{"problem": name, "split": 0, "methods": methods} for name in ("matern_1d", "wine")]
    found = {"stem": "gaps_fast", "environment": ENVIRONMENT, "seconds_in_all": 1.0, "runs": runs}
    section = regression.gaps(found)
    assert "| wine | 3.0 |  |  |  | 0.00 | +0.50 | 90 % | 50 % |" in section.text
    assert "is none: matern_1d 1 of 1; wine 1 of 1." in section.text
    rows = {(row["data"], row["method"]): row for row in section.tables["gaps_fast"]}
    assert rows["wine", gap_summary.BASELINE]["gap_rejected"] is None
    assert rows["wine", regression.BOTH]["gain_in_the_gap"] == 0.5


def test_the_source_names_the_whole_command_and_every_commit() -> None:
    runs = [{"a": {"commit": "aaaaaaaaa"}}, [{"commit": "bbbbbbbbb"}]]
    words = ["python", "-m", "benchmarks", "paper_x", "--rows", "MAP", "--fast", "--seeds", "2"]
    found = {"stem": "x_fast", "environment": ENVIRONMENT | {"command": words}, "seconds_in_all": 1.0}
    text = frame(found | {"seconds_of_work": 120.0, "runs": runs}, "A title", ["x_fast"])
    assert text.startswith("![A title](../paper/results/x_fast.png)\n\n`python -m paper x --fast`: 2 minutes of work")
    assert "commits `aaaaaaa`, `bbbbbbb`" in text
    assert "commit `0123456`" in frame(found, "A title", ["x_fast"])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (number(-0.001), "0.00"),
        (signed(0.5), "+0.50"),
        (signed(-0.5), "-0.50"),
        (signed(0.0), "0.00"),
        (percent(0.125), "12 %"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (table(["x", "y"], [["a", "1"]]), "| x | y |\n| --- | ---: |\n| a | 1 |\n"),
    ],
)
def test_numbers_and_lists_read_well(found: str, expected: str) -> None:
    assert found == expected
