"""Score each candidate of `auto` by a small posterior, on held-out data and on synthetic shifts of it.

All candidates share their passes: one Jacobian over the union of their weights, of which each takes its columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.data.held_out import HeldOut
from offline.data.loaders import rows_within
from offline.data.shifts import keeps_label, synthetic_shifts
from offline.evaluation.auroc import auroc
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.mixtures import rows_of
from offline.jacobian.output_rule import OutputRule, filled
from offline.laplace.calibration import MEMORY_BYTES, held_out_rows
from offline.laplace.ggn import root_blocks
from offline.laplace.posterior import Spectrum
from offline.laplace.prior import (
    BYTES_A_VALUE,
    PLAIN,
    PriorChoice,
    PriorSweep,
    choose_prior,
    grid_log_likelihood,
    prior_share,
)
from offline.runtime.arrays import Array, to_numpy
from offline.selection.auto.context import AutoContext, Proposal
from offline.selection.subnetwork import CandidateScore
from offline.selection.training_sample import draw_sample


@dataclass(frozen=True)
class JointJacobian:
    """The Jacobian over every candidate's judged weights: where each subnetwork's columns stand in it, and for each
    candidate the number of its subnetwork, and its rule.

    It takes the first of the job's rules, whose outputs the others are mixtures of.
    """

    jacobian: SubnetworkJacobian
    columns: tuple[Tensor, ...]
    subnetworks: tuple[int, ...]
    rules: tuple[OutputRule, ...]

    @classmethod
    def of(cls, context: AutoContext, proposals: Sequence[Proposal]) -> "JointJacobian":
        chosen = [id(proposal.subnetwork) for proposal in proposals]
        first = {own: proposals[chosen.index(own)] for own in dict.fromkeys(chosen)}
        most, seed = context.options.judged_weights, context.job.config.seed
        parts = [proposal.judged(most, seed) for proposal in first.values()]
        indices = torch.unique(torch.cat(parts))
        jacobian = context.job.jacobian(indices, context.job.rules[0])
        device = jacobian.indices.device
        columns = tuple(torch.searchsorted(indices, part).to(device) for part in parts)
        numbers = {own: number for number, own in enumerate(first)}
        return cls(jacobian, columns, tuple(numbers[own] for own in chosen), tuple(p.rule for p in proposals))

    def size(self, candidate: int) -> int:
        """How many weights of a candidate are judged."""
        return len(self.columns[self.subnetworks[candidate]])

    def each(self, joined: Tensor) -> Iterator[Tensor]:
        """(B, R, U) -> (B, R, S) for each subnetwork."""
        return (joined.index_select(2, columns) for columns in self.columns)

    def predictive(self, inputs: Tensor) -> tuple[Tensor, Iterator[Tensor]]:
        """The mean (B, K), and for each candidate the derivatives (B, M, S) whose variances its rule needs."""
        own = self.jacobian.rule
        mean, joined = self.jacobian.predictive(inputs)
        return mean, (self._rows(own, joined, mean, number, rule) for number, rule in self._pairs())

    def _pairs(self) -> Iterator[tuple[int, OutputRule]]:
        return zip(self.subnetworks, self.rules, strict=True)

    def _rows(self, own: OutputRule, joined: Tensor, mean: Tensor, number: int, rule: OutputRule) -> Tensor:
        rows = joined.index_select(2, self.columns[number])
        return rows if rule == own else rows_of(rule.mixing(mean), own.mixing(mean), rows)


@dataclass(frozen=True)
class Quality:
    """Predictive log-likelihood and out-of-distribution score of each example, (n,)."""

    log_likelihood: Array
    score: Array


def score_candidates(context: AutoContext, proposals: tuple[Proposal, ...]) -> tuple[CandidateScore, ...]:
    """Fit each proposal on part of the training data, choose its lambda within the budget, and score it."""
    options, seed = context.options, context.job.config.seed
    union = JointJacobian.of(context, proposals)
    held_out = context.judged
    spectra = _spectra(context, union)
    priors = _priors(context, union, spectra, held_out)
    usual = _qualities(context, union, spectra, priors, held_out)
    shifted = {
        name: _qualities(context, union, spectra, priors, HeldOut(inputs, held_out.targets))
        for name, inputs in synthetic_shifts(held_out.inputs, seed, options.shifts).items()
    }
    return tuple(
        CandidateScore(
            name=proposal.name,
            size=len(proposal.subnetwork.indices),
            judged=union.size(c),
            forward_passes=proposal.forward_passes,
            prior_precision=priors[c].precision,
            cost=_cost(priors[c]),
            log_likelihood=float(usual[c].log_likelihood.mean()),
            shift_log_likelihood=_shift_log_likelihood({name: each[c] for name, each in shifted.items()}),
            shift_auroc=float(np.mean([auroc(usual[c].score, each[c].score) for each in shifted.values()])),
        )
        for c, proposal in enumerate(proposals)
    )


def _spectra(context: AutoContext, union: JointJacobian) -> list[Spectrum]:
    """Eigenpairs of each candidate's curvature on part of the training data, scaled to all N; candidates that share
    their weights share them."""
    data, total = training_sample(context)
    likelihood, device = context.job.likelihood, union.jacobian.indices.device
    sums = [torch.zeros(len(c), len(c), dtype=torch.float64, device=device) for c in union.columns]
    rows = held_out_rows(union.jacobian, likelihood.outputs)
    for inputs, _ in data.chunks(rows, context.job.track, "Candidates: curvature"):
        root = torch.cat(list(root_blocks(union.jacobian, inputs, likelihood)[1]), dim=2)
        for ggn, part in zip(sums, union.each(root), strict=True):
            ggn.addmm_(part.flatten(0, 1).T, part.flatten(0, 1))
    scale = total / len(data) / likelihood.noise_variance
    spectra = [Spectrum.of(scale * ggn) for ggn in sums]
    return [spectra[number] for number in union.subnetworks]


def training_sample(context: AutoContext) -> tuple[HeldOut, int]:
    """At most `training_examples` of the training data, and N, how many there are."""
    wanted, drawn = context.options.training_examples, context.sample
    if drawn is None or not drawn.holds(wanted):
        drawn = draw_sample(context.job, wanted)
    return drawn.first(wanted), drawn.total


def _priors(
    context: AutoContext, union: JointJacobian, spectra: list[Spectrum], held_out: HeldOut
) -> list[PriorChoice]:
    """The smallest lambda of each candidate that keeps to the uncertainty budget."""
    job, config, outputs = context.job, context.job.config, context.job.likelihood.outputs
    shares = [prior_share(union.size(c), job.layout.total, config.prior_scaling) for c in range(len(spectra))]
    ranges = [spectrum.search_range(share) for spectrum, share in zip(spectra, shares, strict=True)]
    precisions = max(ranges, key=len)  # the others are its ends
    used = [precisions * share for share in shares]
    total = np.zeros((len(used), len(precisions) + 1))
    rows = rows_within(MEMORY_BYTES, BYTES_A_VALUE * outputs * total.shape[1])
    rows = min(rows, held_out_rows(union.jacobian, outputs))
    for inputs, targets in held_out.chunks(rows, job.track, "Candidates: prior precision"):
        mean, rows_of_each = union.predictive(inputs)
        for c, part in enumerate(rows_of_each):
            variances = filled(union.rules[c], spectra[c].variances(part, np.append(used[c], PLAIN)), mean)
            scores = grid_log_likelihood(to_numpy(mean), variances, to_numpy(targets), job.likelihood)
            total[c] += scores.sum(1)
    total /= len(held_out)
    sweeps = [
        PriorSweep(own, u[-len(own) :], np.zeros(len(own)), t[-len(own) - 1 : -1], float(t[-1]))
        for own, u, t in zip(ranges, used, total, strict=True)
    ]
    return [choose_prior(sweep.as_far_as_it_matters(), "budget", config.budget) for sweep in sweeps]


def _qualities(
    context: AutoContext, union: JointJacobian, spectra: list[Spectrum], priors: list[PriorChoice], data: HeldOut
) -> list[Quality]:
    """How each candidate predicts the data."""
    likelihood, means = context.job.likelihood, []
    variances: list[list[Array]] = [[] for _ in priors]
    rows = held_out_rows(union.jacobian, likelihood.outputs)
    for inputs, _ in data.chunks(rows, context.job.track, "Candidates: shifts"):
        mean, rows_of_each = union.predictive(inputs)
        means.append(to_numpy(mean.double()))
        for c, part in enumerate(rows_of_each):
            computed = spectra[c].variances(part, np.array([priors[c].used]))[:, :, 0]
            variances[c].append(filled(union.rules[c], computed, mean))
    f, y = np.concatenate(means), to_numpy(data.targets)
    each = map(np.concatenate, variances)
    return [Quality(likelihood.log_likelihood(f, v, y), likelihood.predict(f, v).score) for v in each]


def _cost(prior: PriorChoice) -> float:
    assert prior.cost is not None  # there are held-out data
    return prior.cost


def _shift_log_likelihood(shifted: dict[str, Quality]) -> float:
    """Mean over the shifts that keep the label; over all where none does."""
    kept = [name for name in shifted if keeps_label(name)] or list(shifted)
    return float(np.mean([shifted[name].log_likelihood.mean() for name in kept]))
