"""A small posterior for each candidate, and how it does on held-out data and on synthetic shifts of it.

All candidates share their passes: one Jacobian over the union of their weights a chunk, of which each takes its
columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.data.held_out import HeldOut
from offline.data.loaders import in_chunks, rows_within
from offline.data.shifts import keeps_label, synthetic_shifts
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.laplace.calibration import MEMORY_BYTES, held_out_rows
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


@dataclass(frozen=True)
class Union:
    """The Jacobian over every candidate's judged weights, and where each candidate's columns stand in it."""

    jacobian: SubnetworkJacobian
    columns: tuple[Tensor, ...]

    @classmethod
    def of(cls, context: AutoContext, parts: list[Tensor]) -> "Union":
        indices = torch.unique(torch.cat(parts))
        jacobian = context.job.jacobian(indices)
        device = jacobian.indices.device
        return cls(jacobian, tuple(torch.searchsorted(indices, part).to(device) for part in parts))

    def each(self, joined: Tensor) -> Iterator[Tensor]:
        """(B, K, U) -> (B, K, S) for each candidate."""
        return (joined.index_select(2, columns) for columns in self.columns)


def judge(context: AutoContext, proposals: tuple[Proposal, ...]) -> tuple[CandidateScore, ...]:
    """Fit each proposal on part of the training data, choose its lambda within the budget, and score it."""
    parts = [proposal.judged(context.options.judged_weights, context.job.config.seed) for proposal in proposals]
    union = Union.of(context, parts)
    held_out = _part_of(context)
    spectra = _spectra(context, union)
    priors = _priors(context, union, spectra, held_out)
    usual = _predictions(context, union, spectra, priors, held_out)
    shifted = {
        name: _predictions(context, union, spectra, priors, HeldOut(inputs, held_out.targets))
        for name, inputs in synthetic_shifts(held_out.inputs, context.job.config.seed, context.options.shifts).items()
    }
    return tuple(
        CandidateScore(
            name=proposal.name,
            size=len(proposal.subnetwork.indices),
            judged=len(parts[c]),
            forward_passes=proposal.forward_passes,
            prior_precision=priors[c].precision,
            cost=_cost(priors[c]),
            log_likelihood=float(usual[c].log_likelihood.mean()),
            shift_log_likelihood=_shift_log_likelihood({name: judgements[c] for name, judgements in shifted.items()}),
            shift_auroc=float(
                np.mean([_auroc(usual[c].score, judgements[c].score) for judgements in shifted.values()])
            ),
        )
        for c, proposal in enumerate(proposals)
    )


@dataclass(frozen=True)
class Judgement:
    """Predictive log-likelihood and out-of-distribution score of each example, (n,)."""

    log_likelihood: Array
    score: Array


def _part_of(context: AutoContext) -> HeldOut:
    """At most `judged_examples` of the tuning data."""
    count = len(context.tuning)
    return context.tuning.split(min(1.0, context.options.judged_examples / count), context.job.config.seed)[0]


def _spectra(context: AutoContext, union: Union) -> list[Spectrum]:
    """Eigenpairs of each candidate's curvature on part of the training data, scaled to all N."""
    data, total = sample(context)
    rows = held_out_rows(union.jacobian, context.job.likelihood.outputs)
    device = union.jacobian.indices.device
    sums = [torch.zeros(len(c), len(c), dtype=torch.float64, device=device) for c in union.columns]
    for inputs, _ in in_chunks(data.inputs, data.targets, rows):
        mean, joined = union.jacobian(inputs)
        root = context.job.likelihood.sqrt_hessian_product(joined.double(), mean.double())
        for ggn, part in zip(sums, union.each(root), strict=True):
            ggn.addmm_(part.flatten(0, 1).T, part.flatten(0, 1))
    scale = total / len(data) / context.job.likelihood.noise_variance
    return [Spectrum.of(scale * ggn) for ggn in sums]


def sample(context: AutoContext) -> tuple[HeldOut, int]:
    """At most `training_examples` of the training data, uniformly by the seed in one pass, and N, all there are.

    Every example draws a key; the smallest keys are kept.
    """
    generator = np.random.default_rng(context.job.config.seed)
    kept: HeldOut | None = None
    keys, total = np.zeros(0), 0
    for inputs, raw_targets in context.job.pass_over_training():
        targets = context.job.likelihood.check_targets(raw_targets, len(inputs))
        total += len(inputs)
        before, keys = len(keys), np.append(keys, generator.random(len(inputs)))
        first = np.sort(np.argsort(keys, kind="stable")[: context.options.training_examples])
        keys = keys[first]
        if first[-1] >= before:  # nothing is copied where no new example is among them
            kept = (kept.joined(inputs, targets) if kept is not None else HeldOut(inputs, targets)).at(first)
    assert kept is not None  # the loader's check has found an example
    return kept, total


def _priors(context: AutoContext, union: Union, spectra: list[Spectrum], held_out: HeldOut) -> list[PriorChoice]:
    """The smallest lambda of each candidate that keeps to the uncertainty budget."""
    scaling, weights = context.job.config.prior_scaling, context.job.layout.total
    shares = [prior_share(len(columns), weights, scaling) for columns in union.columns]
    ranges = [spectrum.search_range(share) for spectrum, share in zip(spectra, shares, strict=True)]
    precisions = max(ranges, key=len)  # the others are its ends
    used = [precisions * share for share in shares]
    total = np.zeros((len(used), len(precisions) + 1))
    rows = rows_within(MEMORY_BYTES, BYTES_A_VALUE * context.job.likelihood.outputs * total.shape[1])
    for inputs, targets in held_out.chunks(
        min(rows, held_out_rows(union.jacobian, context.job.likelihood.outputs)),
        context.job.track,
        "Candidates: prior precision",
    ):
        mean, joined = union.jacobian(inputs)
        for c, part in enumerate(union.each(joined)):
            variances = spectra[c].variances(part, np.append(used[c], PLAIN))
            scores = grid_log_likelihood(to_numpy(mean), variances, to_numpy(targets), context.job.likelihood)
            total[c] += scores.sum(1)
    total /= len(held_out)
    sweeps = [
        PriorSweep(own, u[-len(own) :], np.zeros(len(own)), t[-len(own) - 1 : -1], float(t[-1]))
        for own, u, t in zip(ranges, used, total, strict=True)
    ]
    return [
        choose_prior(sweep.as_far_as_it_matters(), "budget", context.job.config.uncertainty_budget) for sweep in sweeps
    ]


def _predictions(
    context: AutoContext,
    union: Union,
    spectra: list[Spectrum],
    priors: list[PriorChoice],
    data: HeldOut,
) -> list[Judgement]:
    """What each candidate says of the data."""
    means: list[Array] = []
    variances: list[list[Array]] = [[] for _ in priors]
    for inputs, _ in data.chunks(
        held_out_rows(union.jacobian, context.job.likelihood.outputs), context.job.track, "Candidates: shifts"
    ):
        mean, joined = union.jacobian(inputs)
        means.append(to_numpy(mean.double()))
        for c, part in enumerate(union.each(joined)):
            variances[c].append(spectra[c].variances(part, np.array([priors[c].used]))[:, :, 0])
    mean_all, y = np.concatenate(means), to_numpy(data.targets)
    likelihood = context.job.likelihood
    each = [np.concatenate(parts) for parts in variances]
    return [Judgement(likelihood.log_likelihood(mean_all, v, y), likelihood.describe(mean_all, v).score) for v in each]


def _cost(prior: PriorChoice) -> float:
    assert prior.cost is not None  # there are held-out data
    return prior.cost


def _shift_log_likelihood(shifted: dict[str, Judgement]) -> float:
    """Mean over the shifts that keep the label; over all where none does."""
    kept = [name for name in shifted if keeps_label(name)] or list(shifted)
    return float(np.mean([shifted[name].log_likelihood.mean() for name in kept]))


def _auroc(usual: Array, shifted: Array) -> float:
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([0, 1], [len(usual), len(shifted)])
    return float(roc_auc_score(labels, np.concatenate([usual, shifted])))
