"""The options of `auto`: which strategies and shifts count, and on how many weights and examples it judges."""

from typing import Any

import pytest

from offline.selection.auto.candidates import propose
from offline.selection.auto.choose import choose_automatically
from tests.support.auto_selection import context_of, explanation_of


@pytest.mark.parametrize("name", ["judged_weights", "judged_examples", "training_examples", "pool"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True, "10", None])
def test_counts_are_integers_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"selection_options\['{name}'\]: found .*, expected an integer of at least 1"
    ):
        context_of("table", **{name: value})


@pytest.mark.parametrize("value", ["gradient", ["auto"], [3], None])
def test_strategies_are_a_list_of_names(value: object) -> None:
    with pytest.raises(ValueError, match=r"selection_options\['strategies'\]: found .*, expected a list of selection"):
        context_of("table", strategies=value)


def test_only_the_shifts_that_were_named_count() -> None:
    context = context_of("images", shifts=("rotation-90",))
    result = choose_automatically(context)
    whole = choose_automatically(context_of("images"))
    assert "log-likelihood under rotation-90 " in explanation_of(result)
    pairs = {a.name: (a, b) for a in result.candidates for b in whole.candidates if a.name == b.name}
    same = [
        pair for name, pair in pairs.items() if not name.startswith("novelty-sampling")
    ]  # up to rounding: another batch of columns
    assert all(a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-6) for a, b in same)
    assert any(a.shift_log_likelihood != b.shift_log_likelihood for a, b in pairs.values())
    novel = [proposal for proposal in propose(context) if proposal.subnetwork.strategy == "novelty-sampling"]
    assert novel
    assert all(proposal.subnetwork.options == {"shifts": ["rotation-90"]} for proposal in novel)


@pytest.mark.parametrize("value", ["noise", [3]])
def test_shifts_are_a_list_of_names(value: object) -> None:
    with pytest.raises(ValueError, match=r"\['shifts'\]: found .* expected a list of names"):
        context_of("images", shifts=value)


def test_large_candidates_are_judged_on_some_of_their_weights() -> None:
    result = choose_automatically(context_of("table", size=60, judged_weights=25))
    assert {score.judged for score in result.candidates} == {25}
    assert max(score.size for score in result.candidates) == 60
    (chosen,) = [score for score in result.candidates if score.chosen]
    assert f", judged on 25 of {chosen.size} weights" in explanation_of(result)
    assert len(result.indices) == chosen.size


def test_fewer_examples_still_give_a_choice() -> None:
    result = choose_automatically(context_of("images", judged_examples=10, training_examples=20, strategies=()))
    assert sum(score.chosen for score in result.candidates) == 1
