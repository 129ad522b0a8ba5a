"""`auto` with the choice of the variances that a prediction computes."""

import json
from dataclasses import replace

import pytest
import torch

from offline.config import FitConfig
from offline.data.shifts import available_shifts
from offline.jacobian.output_rule import ALL_OUTPUTS, Margin, TopOutputs
from offline.selection.auto.candidates import propose
from offline.selection.auto.choose import choose_automatically
from offline.selection.auto.context import AutoContext, Proposal
from offline.selection.auto.score import score_candidates
from offline.selection.subnetwork import CandidateScore, Subnetwork
from tests.support.auto_selection import context_of


def scored(context: AutoContext) -> dict[str, tuple[Proposal, CandidateScore]]:
    shifts = available_shifts(context.tuning.inputs)[:2]
    context = replace(context, options=replace(context.options, shifts=shifts))
    proposals = propose(context)
    pairs = zip(proposals, score_candidates(context, proposals), strict=True)
    return {proposal.name: (proposal, score) for proposal, score in pairs}


def test_fewer_variances_are_tried_where_they_cost_less() -> None:
    proposals = propose(context_of("images", size=20, strategies=(), variance_of="auto"))
    assert [p.name for p in proposals] == [
        "random live weights of '8'",  # the head needs no backward pass
        "random live weights of '6' and after it",  # and this layer one, whatever is computed
        "random live weights of '3' and after it",
        "random live weights of '3' and after it, top",
        "random live weights of '3' and after it, margin",
        "random live weights of the network",
        "random live weights of the network, top",
        "random live weights of the network, margin",
    ]
    *_, every, three, margin = proposals
    assert every.forward_passes > three.forward_passes > margin.forward_passes > 1
    assert (every.rule, three.rule, margin.rule) == (ALL_OUTPUTS, TopOutputs(3), Margin())
    assert every.subnetwork is three.subnetwork is margin.subnetwork


def test_a_place_that_is_too_dear_for_all_variances_may_do_for_one() -> None:
    dear = propose(context_of("images", size=20, strategies=(), variance_of="auto"))[-3:]
    limit = (dear[1].forward_passes + dear[2].forward_passes) / 2
    names = [p.name for p in propose(context_of("images", size=20, strategies=(), variance_of="auto", max_cost=limit))]
    assert names[-1] == "random live weights of the network, margin"
    assert "random live weights of the network" not in names


@pytest.mark.parametrize(
    ("kind", "most", "many"),
    [("margin", 5, 64), ("margin", 5, 2), ("top", 3, 64), ("top", 3, 2)],
)
def test_a_candidate_scores_as_if_its_variances_were_the_jobs(kind: str, most: int, many: int) -> None:
    """Mixtures of the derivatives of all outputs, or of the leading ones, equal those of a backward pass each."""
    compared = context_of("images", size=20, strategies=(), variance_of="auto", curvature_outputs=many)
    found = scored(compared)
    assert compared.job.rules[0] == (ALL_OUTPUTS if many == 64 else TopOutputs(5))
    alone = scored(
        context_of("images", size=20, strategies=(), variance_of=kind, top_outputs=most, curvature_outputs=many)
    )
    for place in ("'3' and after it", "the network"):
        proposal, score = found[f"random live weights of {place}, {kind}"]
        same, expected = alone[f"random live weights of {place}"]
        assert proposal.rule == same.rule
        assert torch.equal(proposal.subnetwork.indices, same.subnetwork.indices)
        for quantity in ("forward_passes", "prior_precision", "cost", "log_likelihood", "shift_log_likelihood"):
            assert getattr(score, quantity) == pytest.approx(getattr(expected, quantity), rel=1e-3, abs=1e-5)
        assert score.shift_auroc == pytest.approx(expected.shift_auroc, abs=0.01)


def test_the_choice_says_what_is_computed() -> None:
    context = context_of("images", size=20, strategies=("novelty-sampling",), variance_of="auto", max_cost=1000.0)
    result = choose_automatically(context)
    (chosen,) = [score for score in result.candidates if score.chosen]
    rules = {p.name: p.rule for p in propose(context)}
    assert chosen.name in rules
    assert result.variance_of == rules[chosen.name].kind
    assert result.computed == rules[chosen.name].count(4)
    values = json.loads(json.dumps(result.to_json()))
    assert Subnetwork.from_json(result.indices, values) == replace(result, indices=result.indices)


@pytest.mark.parametrize("strategy", ["random", "gradient"])
def test_only_auto_compares_variances(strategy: str) -> None:
    with pytest.raises(ValueError, match=rf"variance_of: found 'auto' with selection='{strategy}', expected selection"):
        FitConfig.model_validate({"subnetwork_size": 3, "selection": strategy, "variance_of": "auto"})


def test_a_regression_has_no_leading_output() -> None:
    with pytest.raises(ValueError, match="variance_of: found 'auto' for a regression, expected 'all'"):
        FitConfig(subnetwork_size=3, selection="auto", likelihood="regression", variance_of="auto")
