"""`auto` as a whole: one of the candidates is chosen, judged as the definitions say, and nothing else changes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from offline.data.held_out import HeldOut
from offline.data.shifts import available_shifts, keeps_label, split_shifts, synthetic_shifts
from offline.network.model_copy import private_copy
from offline.selection.auto.candidates import propose
from offline.selection.auto.choose import choose_automatically, merit
from offline.selection.auto.context import AutoContext, AutoOptions, Names
from offline.selection.subnetwork import Subnetwork
from tests import reference
from tests.support.auto_selection import BUDGET, KINDS, context_of, explanation_of
from tests.support.networks import hooks_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest) -> tuple[str, AutoContext, Subnetwork]:
    context = context_of(request.param)
    return request.param, context, choose_automatically(context)


def test_the_table_is_complete_and_one_is_chosen(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, context, result = case
    names = [score.name for score in result.candidates]
    assert len(set(names)) == len(names) >= 4
    assert {"gradient", "novelty-sampling"} <= set(names)
    assert any(name.startswith("novelty-sampling in ") for name in names)
    assert sum(name.startswith(("random live weights", "all live weights")) for name in names) >= 2
    (chosen,) = [score for score in result.candidates if score.chosen]
    assert chosen.size == len(result.indices) <= context.job.size
    for score in result.candidates:
        assert score.forward_passes >= 1
        assert math.isfinite(score.log_likelihood)
        assert math.isfinite(score.shift_log_likelihood)
        assert 0 <= score.shift_auroc <= 1
        assert score.prior_precision > 0


def test_every_candidate_keeps_to_the_budget(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, _, result = case
    assert all(0 <= score.cost <= BUDGET for score in result.candidates)


def test_the_indices_are_live_and_ascending(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, context, result = case
    assert result.indices.dtype == torch.int64
    assert (result.indices.diff() > 0).all()
    assert set(result.indices.tolist()) <= set(range(context.job.layout.total))
    if result.strategy == "random":  # the others say for themselves what lives
        assert torch.isin(result.indices, context.live).all()


SHIFTS = {
    "images": ("blur, rotation-45 and rotation-90", "noise, inversion and erasing"),
    "table": ("scaling and permuted-columns", "noise and widened-range"),
    "tokens": ("shuffled-order and random-tokens", "the same shifts"),
}


def test_strategies_are_not_judged_by_the_shifts_that_they_have_seen(
    case: tuple[str, AutoContext, Subnetwork],
) -> None:
    kind, _, result = case
    judging, choosing = SHIFTS[kind]
    explanation = explanation_of(result)
    assert f"log-likelihood under {judging} " in explanation
    assert explanation.endswith(f"; strategies chose weights by {choosing}")


def test_the_strategy_records_the_shifts_that_it_has_seen() -> None:
    context = context_of("images", strategies=("novelty-sampling",))
    seen: list[object] = []

    def select(strategy: str, size: int, options: AutoOptions, within: Names) -> Subnetwork:
        seen.append(options.shifts)
        return context.select(strategy, size, options, within)

    choose_automatically(replace(context, select=select))
    assert set(seen) == {("noise", "inversion", "erasing")}


def test_the_explanation_is_one_sentence(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, _, result = case
    (chosen,) = [score for score in result.candidates if score.chosen]
    explanation = explanation_of(result)
    assert explanation.startswith(f"{chosen.name}: log-likelihood under ")
    assert f"AUROC {chosen.shift_auroc:.2f}, {chosen.forward_passes:.1f} forward passes an example" in explanation
    assert "\n" not in explanation
    assert ". " not in explanation


def test_the_same_seed_gives_the_same_result(case: tuple[str, AutoContext, Subnetwork]) -> None:
    kind, _, result = case
    again = choose_automatically(context_of(kind))
    assert torch.equal(again.indices, result.indices)
    assert again.candidates == result.candidates
    assert again.explanation == result.explanation


def test_the_network_and_the_data_come_back_as_they_were() -> None:
    context = context_of("images")
    before = {name: tensor.clone() for name, tensor in context.job.network.state_dict().items()}
    inputs, state = context.tuning.inputs.clone(), torch.get_rng_state()
    choose_automatically(context)
    assert all(torch.equal(tensor, before[name]) for name, tensor in context.job.network.state_dict().items())
    assert not any(hooks_of(context.job.network))
    assert torch.equal(context.tuning.inputs, inputs)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_equals_the_oracle(kind: str) -> None:
    """Head weights only, everything from the definitions: curvature, predictive, shifts, ranks."""
    context = context_of(kind, size=6, strategies=())
    result = choose_automatically(context)
    proposal, score = propose(context)[0], result.candidates[0]
    assert score.name == proposal.name
    train_x = torch.cat([inputs for inputs, _ in context.job.pass_over_training()])
    chosen = proposal.subnetwork.indices.numpy()
    # the private copy is frozen: the oracle wants trainable tensors
    model = private_copy(context.job.network, CPU).requires_grad_(True)
    train_mean, train_full = reference.full_jacobian(model, train_x)
    sigma = None
    if context.job.likelihood.task == "regression":
        held_mean = reference.full_jacobian(model, context.tuning.inputs)[0]
        sigma = math.sqrt(float(np.mean((held_mean - context.tuning.targets.double().numpy()) ** 2)))
    prior = score.prior_precision * len(chosen) / context.job.layout.total
    precision = reference.posterior_precision(
        train_mean, train_full[:, :, chosen], context.job.likelihood.task, prior, sigma
    )

    def predicted(x: Tensor) -> tuple[float, list[float]]:
        mean, full = reference.full_jacobian(model, x)
        variance = reference.variance(full[:, :, chosen], precision)
        y = context.tuning.targets.numpy()
        if sigma is None:
            p = reference.probit_probabilities(mean, variance)
            return float(np.mean(np.log(p[np.arange(len(y)), y]))), [reference.entropy(row) for row in p]
        v = variance + sigma**2
        each = -0.5 * np.log(2 * np.pi * v) - (y - mean) ** 2 / (2 * v)
        return float(each.sum(1).mean()), [math.sqrt(row.mean()) for row in variance]

    log_likelihood, usual = predicted(context.tuning.inputs)
    assert score.log_likelihood == pytest.approx(log_likelihood, rel=1e-3, abs=1e-4)
    shifted = {name: predicted(x) for name, x in shifts_in_judging(context).items()}
    kept = [value for name, (value, _) in shifted.items() if keeps_label(name)]
    assert score.shift_log_likelihood == pytest.approx(sum(kept) / len(kept), rel=1e-3, abs=1e-3)
    # float32 derivatives leave scores that are equal, or nearly, in either order
    low, high = (
        np.mean([np.mean([a < b + slack for a in usual for b in scores]) for _, scores in shifted.values()])
        for slack in (-1e-4, 1e-4)
    )
    assert low <= score.shift_auroc <= high
    assert high - low < 0.05


def shifts_in_judging(context: AutoContext) -> dict[str, Tensor]:
    """In the order in which the judge has the examples, and back in the data's: shifts draw by place."""
    order = np.random.default_rng(context.job.config.seed).permutation(len(context.tuning))
    back = np.argsort(order)
    inputs = context.tuning.inputs
    judging = split_shifts(available_shifts(inputs))[1]
    shifted = synthetic_shifts(inputs[order], context.job.config.seed, judging)
    return {name: x[back] for name, x in shifted.items()}


def test_a_size_above_all_live_weights_takes_what_there_is() -> None:
    context = context_of("tokens", size=10_000)
    result = choose_automatically(context)
    assert max(score.size for score in result.candidates) == len(context.live)


def test_no_live_weight_is_an_error() -> None:
    context = replace(context_of("table"), live=torch.zeros(0, dtype=torch.int64), dead_weights=7)
    with pytest.raises(ValueError, match="found 7 weights and none with curvature"):
        choose_automatically(context)


def test_no_tuning_data_is_an_error() -> None:
    context = context_of("table")
    nothing = HeldOut(context.tuning.inputs[:0], context.tuning.targets[:0])
    with pytest.raises(ValueError, match="found no held-out data to compare candidates on"):
        choose_automatically(replace(context, tuning=nothing))


def test_a_shift_that_the_network_is_not_defined_for_does_not_count() -> None:
    given = context_of("table")
    seen = [inputs for inputs, _ in given.job.pass_over_training()]
    limit = float(torch.cat([*seen, given.tuning.inputs]).abs().max()) + 1e-3
    first = given.job.network.get_submodule("0")
    first.register_forward_pre_hook(lambda _, x: torch.where(x[0].abs() > limit, torch.nan, x[0]))
    result = choose_automatically(replace(given, options=AutoOptions(strategies=())))
    assert "log-likelihood under permuted-columns " in explanation_of(result)
    assert all(math.isfinite(merit(score)) for score in result.candidates)


def test_a_network_that_fits_exactly_is_judged_with_the_noise_given() -> None:
    context = context_of("table", sigma_noise=0.3)
    with torch.no_grad():
        exact = replace(context.tuning, targets=context.job.network(context.tuning.inputs))
    assert choose_automatically(replace(context, tuning=exact)).candidates
