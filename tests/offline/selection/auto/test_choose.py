"""`auto`: candidates, what they cost to serve, how they are judged, and the rule that decides."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from offline.data.held_out import HeldOut
from offline.data.likelihood import Task
from offline.data.shifts import keeps_label, synthetic_shifts
from offline.laplace.noise import residual_noise
from offline.network.model_copy import private_copy
from offline.selection.auto.candidates import propose
from offline.selection.auto.choose import (
    MARGIN,
    choose_automatically,
    decide,
    explain,
    merit,
)
from offline.selection.auto.context import AutoContext, AutoOptions
from offline.selection.auto.score import sample
from offline.selection.candidate_weights import candidate_positions
from offline.selection.context import SelectionContext
from offline.selection.live_weights import eligible
from offline.selection.registry import select_candidate
from offline.selection.strategies.baselines import random_weights
from offline.selection.subnetwork import CandidateScore, Subnetwork
from tests import reference
from tests.support.networks import hooks_of
from tests.support.selections import changed
from tests.support.selections import context as selection_context

CPU = torch.device("cpu")
BUDGET = 0.05


def image_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A bright bar in one of four places."""
    generator = torch.Generator().manual_seed(100 + seed)
    targets = torch.randint(0, 4, (count,), generator=generator)
    inputs = 0.4 * torch.randn(count, 1, 8, 8, generator=generator)
    inputs[torch.arange(count), 0, 2 * targets] += 1.0
    return inputs, targets


def table_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(200 + seed)
    inputs = torch.randn(count, 3, generator=generator)
    noise = 0.2 * torch.randn(count, 2, generator=generator)
    return inputs, torch.stack([inputs[:, 0].sin(), inputs[:, 1] * inputs[:, 2]], 1) + noise


def token_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The class is the more frequent half of the vocabulary."""
    generator = torch.Generator().manual_seed(300 + seed)
    inputs = torch.randint(0, 12, (count, 7), generator=generator)
    return inputs, ((inputs >= 6).sum(1) > 3).long()


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(12, 6), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.relu(self.inner(self.embedding(tokens).mean(1))))


def image_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )


def table_network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 12), nn.Tanh(), nn.Linear(12, 2))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, Tensor]], Task, int]] = {
    "images": (image_network, image_data, "classification", 4),
    "table": (table_network, table_data, "regression", 2),
    "tokens": (Tokens, token_data, "classification", 2),
}


def context_of(kind: str, size: int = 40, **changes: Any) -> AutoContext:
    """A network trained for a moment, and what a fit would hand on."""
    build, data, likelihood, outputs = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
        trained(model, *data(120, 0), likelihood)
    train = [tuple(part) for part in zip(*(t.split(50) for t in data(120, 0)), strict=True)]
    tuning = HeldOut(*data(24, 1))
    if likelihood == "regression" and "sigma_noise" not in changes:
        changes["sigma_noise"] = residual_noise(model, tuning)
    options = {name: changes.pop(name) for name in signature(AutoOptions).parameters if name in changes}
    whole = selection_context(model, train, size, outputs, likelihood, uncertainty_budget=BUDGET, **changes)
    live, dead = eligible(whole, True)
    by_name = partial(select_candidate, whole)
    return AutoContext(whole.job, tuning, live, dead or 0, by_name, AutoOptions(**options))


def trained(model: nn.Module, inputs: Tensor, targets: Tensor, likelihood: Task) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    loss = nn.CrossEntropyLoss() if likelihood == "classification" else nn.MSELoss()
    for _ in range(60):
        optimiser.zero_grad()
        loss(model(inputs), targets).backward()
        optimiser.step()


def explanation_of(result: Subnetwork) -> str:
    assert result.explanation is not None
    return result.explanation


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest) -> tuple[str, AutoContext, Subnetwork]:
    context = context_of(request.param)
    return request.param, context, choose_automatically(context)


# --------------------------------------------------------------------------- the whole


def test_the_table_is_complete_and_one_is_chosen(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, context, result = case
    names = [score.name for score in result.candidates]
    assert len(set(names)) == len(names) >= 4
    assert {"gradient", "novelty-sampling"} <= set(names)
    assert sum(name.startswith(("random live weights", "all live weights")) for name in names) >= 2
    (chosen,) = [score for score in result.candidates if score.chosen]
    assert chosen.size == len(result.indices) <= context.job.size
    for score in result.candidates:
        assert 1 <= score.forward_passes <= 1 + context.job.likelihood.outputs
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


def test_the_explanation_is_one_sentence(case: tuple[str, AutoContext, Subnetwork]) -> None:
    _, _, result = case
    (chosen,) = [score for score in result.candidates if score.chosen]
    explanation = explanation_of(result)
    assert explanation.startswith(f"{chosen.name}: log-likelihood under synthetic shift ")
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
    return {
        name: x[back] for name, x in synthetic_shifts(context.tuning.inputs[order], context.job.config.seed).items()
    }


# --------------------------------------------------------------------------- candidates


def test_the_cheap_end_comes_first_and_costs_less() -> None:
    context = context_of("images", size=20, strategies=())
    proposals = propose(context)
    assert [p.name for p in proposals] == [
        "random live weights of '8'",
        "random live weights of '6' and after it",
        "random live weights of '3' and after it",
        "random live weights of the network",
    ]
    # multiply-adds: 54 * 64 of the first convolution, then 432 * 16, 128 * 12 and 48
    parts = [54 * 64, 432 * 16, 1536, 48]
    shares = [0.0, parts[3] / sum(parts), (parts[2] + parts[3]) / sum(parts), sum(parts[1:]) / sum(parts)]
    for proposal, share in zip(proposals, shares, strict=True):
        assert proposal.forward_passes == pytest.approx(1 + 4 * share)
        assert len(proposal.subnetwork.indices) == 20
        assert torch.isin(proposal.subnetwork.indices, context.live).all()
        assert proposal.subnetwork.dead_weights == context.dead_weights


def test_fewer_live_weights_than_asked_for_are_all_taken() -> None:
    context = context_of("images", size=300, strategies=())
    last = propose(context)[0]
    assert last.name == "all live weights of '8'"
    assert len(last.subnetwork.indices) <= 52
    inside = [i for i in context.live.tolist() if i >= context.job.layout.total - 52]
    assert last.subnetwork.indices.tolist() == inside


@pytest.mark.parametrize("size", [10, 300])
def test_strategy_options_and_modules_give_the_weights_again(size: int) -> None:
    context = context_of("table", size=size, strategies=())
    for proposal in propose(context):
        candidates = candidate_positions(context.job.network, context.job.layout, proposal.subnetwork.within, "all")
        given = SelectionContext(context.job, len(proposal.subnetwork.indices), candidates, 2**26)
        again = random_weights(given, **proposal.subnetwork.options)
        assert proposal.subnetwork.strategy == "random"
        assert torch.equal(again.indices, proposal.subnetwork.indices)


def test_a_size_above_all_live_weights_takes_what_there_is() -> None:
    context = context_of("tokens", size=10_000)
    result = choose_automatically(context)
    assert max(score.size for score in result.candidates) == len(context.live)


def test_the_same_weights_are_tried_once() -> None:
    context = context_of("table", strategies=("random", "random"), size=10)
    proposals = propose(context)
    assert len({tuple(p.subnetwork.indices.tolist()) for p in proposals}) == len(proposals)


def test_only_permitted_weights_are_drawn() -> None:
    context = context_of("images")
    permitted = context.live[context.live >= 60]
    proposals = propose(replace(context, live=permitted, options=AutoOptions(strategies=())))
    assert all(torch.isin(p.subnetwork.indices, permitted).all() for p in proposals)


def test_no_live_weight_is_an_error() -> None:
    context = replace(context_of("table"), live=torch.zeros(0, dtype=torch.int64), dead_weights=7)
    with pytest.raises(ValueError, match="found 7 weights and none with curvature"):
        choose_automatically(context)


def test_no_tuning_data_is_an_error() -> None:
    context = context_of("table")
    nothing = HeldOut(context.tuning.inputs[:0], context.tuning.targets[:0])
    with pytest.raises(ValueError, match="found no held-out data to compare candidates on"):
        choose_automatically(replace(context, tuning=nothing))


@pytest.mark.parametrize("name", ["judged_weights", "judged_examples", "training_examples"])
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


# --------------------------------------------------------------------------- part of the data and of the weights


def test_only_the_shifts_that_were_named_count() -> None:
    context = context_of("images", shifts=("rotation-90",))
    result = choose_automatically(context)
    whole = choose_automatically(context_of("images"))
    assert "log-likelihood under rotation-90 " in explanation_of(result)
    pairs = {a.name: (a, b) for a in result.candidates for b in whole.candidates if a.name == b.name}
    same = [
        pair for name, pair in pairs.items() if name != "novelty-sampling"
    ]  # up to rounding: another batch of columns
    assert all(a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-6) for a, b in same)
    assert any(a.shift_log_likelihood != b.shift_log_likelihood for a, b in pairs.values())
    (novel,) = (proposal for proposal in propose(context) if proposal.subnetwork.strategy == "novelty-sampling")
    assert novel.subnetwork.options == {"shifts": ["rotation-90"]}


def test_a_shift_that_the_network_is_not_defined_for_does_not_count() -> None:
    given = context_of("table")
    seen = [inputs for inputs, _ in given.job.pass_over_training()]
    limit = float(torch.cat([*seen, given.tuning.inputs]).abs().max()) + 1e-3
    first = given.job.network.get_submodule("0")
    first.register_forward_pre_hook(lambda _, x: torch.where(x[0].abs() > limit, torch.nan, x[0]))
    result = choose_automatically(replace(given, options=AutoOptions(strategies=())))
    assert "log-likelihood under permuted-columns " in explanation_of(result)
    assert all(math.isfinite(merit(score)) for score in result.candidates)


def test_what_may_not_be_chosen_is_not_named() -> None:
    """Live weights restricted to the first layers: no proposal says that later ones were open."""
    given = context_of("table")
    first = given.job.layout.parameters[0].size + given.job.layout.parameters[1].size
    proposals = propose(replace(given, live=given.live[given.live < first]))
    assert all(
        proposal.subnetwork.within in (None, ("0",))
        for proposal in proposals
        if proposal.subnetwork.strategy == "random"
    )


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


@pytest.mark.parametrize("count", [1, 30, 200, 1000])
def test_the_sample_is_uniform_without_repeats(count: int) -> None:
    context = context_of("table", training_examples=count)
    inputs = torch.arange(200.0).reshape(200, 1)
    pairs = list(zip(inputs.split(37), torch.zeros(200, 2).split(37), strict=True))

    def drawn_with(seed: int) -> tuple[HeldOut, int]:
        return sample(replace(context, job=changed(context.job, train=pairs, seed=seed)))

    drawn, total = drawn_with(0)
    assert total == 200
    assert len(drawn) == min(count, 200)
    assert (drawn.inputs[:, 0].diff() > 0).all(), "in the loader's order, each once"
    again, _ = drawn_with(0)
    assert torch.equal(again.inputs, drawn.inputs)
    if count == 30:
        means = [float(drawn_with(s)[0].inputs.mean()) for s in range(100)]
        assert np.mean(means) == pytest.approx(99.5, abs=4)


def test_fewer_examples_still_give_a_choice() -> None:
    result = choose_automatically(context_of("images", judged_examples=10, training_examples=20, strategies=()))
    assert sum(score.chosen for score in result.candidates) == 1


def test_a_network_that_fits_exactly_is_judged_with_the_noise_given() -> None:
    context = context_of("table", sigma_noise=0.3)
    with torch.no_grad():
        exact = replace(context.tuning, targets=context.job.network(context.tuning.inputs))
    assert choose_automatically(replace(context, tuning=exact)).candidates


# --------------------------------------------------------------------------- the decision


def score_of(ll: float, auroc: float = 1.0, passes: float = 2.0, cost: float = 0.0, name: str = "x") -> CandidateScore:
    return CandidateScore(name, 10, 10, passes, 1.0, cost, -0.1, ll, auroc)


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ([score_of(-2), score_of(-1), score_of(-3)], 1),
        ([score_of(-1, passes=9), score_of(-1, passes=2)], 1),  # the cheaper wins a tie
        ([score_of(-1, passes=9), score_of(-1 - 0.9 * MARGIN, passes=2)], 1),  # and where it is nearly as good
        ([score_of(-1, passes=9), score_of(-1 - 1.1 * MARGIN, passes=2)], 0),
        ([score_of(-1.01), score_of(-1.0)], 1),  # at the same price, the better
        ([score_of(-1), score_of(-1)], 0),
        ([score_of(-1, auroc=0.4), score_of(-1.5, auroc=0.95)], 1),  # worse than chance at telling shifts
        ([score_of(-1, cost=0.2), score_of(-2)], 1),  # beyond the budget
        ([score_of(-1, cost=0.2), score_of(-2, cost=0.3)], 0),  # unless all are
    ],
)
def test_the_rule(scores: list[CandidateScore], place: int) -> None:
    assert decide(tuple(scores), BUDGET) == place


@given(
    st.lists(st.tuples(st.floats(-9, 3), st.floats(0, 1), st.floats(1, 20), st.floats(0, 0.1)), min_size=1, max_size=8)
)
def test_what_is_chosen_is_near_the_best_and_no_near_one_is_cheaper(
    values: list[tuple[float, float, float, float]],
) -> None:
    scores = tuple(score_of(*value) for value in values)
    place = decide(scores, BUDGET)
    allowed = [s for s in scores if s.cost <= BUDGET] or list(scores)
    best = max(map(merit, allowed))
    assert scores[place] in allowed
    assert merit(scores[place]) >= best - MARGIN
    assert not any(s.forward_passes < scores[place].forward_passes and merit(s) >= best - MARGIN for s in allowed)


def test_merit_is_in_nats() -> None:
    assert merit(score_of(-1.5, auroc=0.5)) == pytest.approx(-1.5 + math.log(0.5))
    assert math.isfinite(merit(score_of(-1.5, auroc=0.0)))


def test_the_words() -> None:
    scores = (score_of(-1.1, 0.97, 1.9, name="last"), score_of(-1.13, 0.97, 11, name="gradient"))
    assert explain(scores, 0) == (
        "last: log-likelihood under synthetic shift -1.10 (next best -1.13, gradient), AUROC 0.97, "
        "1.9 forward passes an example"
    )
    assert "(best -1.10, last)" in explain(scores, 1)
    assert explain(scores[:1], 0, ("noise", "blur")).startswith("last: log-likelihood under noise and blur -1.10, ")
    assert explain(scores[:1], 0) == (
        "last: log-likelihood under synthetic shift -1.10, AUROC 0.97, 1.9 forward passes an example"
    )
