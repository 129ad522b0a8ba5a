"""`auto`: compare several subnetworks on a small scale, and keep the best or a cheaper one that is nearly as good.

No strategy wins everywhere, and a large variance alone is no merit: an uncertainty is good when it leaves ordinary
data alone, makes wrong predictions of shifted data less sure, and tells the two apart. So every candidate may cost the
same on held-out data (the uncertainty budget), and is then judged on synthetic shifts of it:

    merit = shift_log_likelihood + log(shift_auroc)        in nats

the mean log-probability of the true label under shift plus that of telling a shifted example from an ordinary one;
differences do not depend on the units of a regression's targets. Candidates within `MARGIN` of the best are alike, and
the cheapest of them to serve is taken: by the time of their graphs, which are exported and timed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from offline.data.shifts import accepted_shifts, split_shifts
from offline.export.price import Price
from offline.selection.auto.candidates import propose
from offline.selection.auto.context import USUAL_COST, AutoContext, Proposal
from offline.selection.auto.score import score_candidates
from offline.selection.subnetwork import CandidateScore, Subnetwork

MARGIN = 0.02  # nats; of the order of the error that some hundred examples leave in the merit
LEAST_AUROC = 1e-3
FINALISTS, TIMING_ERROR = 3, 1.1


def choose_automatically(context: AutoContext) -> Subnetwork:
    """Compare the candidates and choose one; the same seed and data give the same choice.

    The strategies choose weights by some kinds of synthetic shift, and the candidates are judged by others, so that no
    strategy is judged by what it has seen; where the user names shifts, or few are left, all of them do both. A shift
    under which the network has outputs that are not finite does not count. Raises `ValueError` when there are no tuning
    data, no weight has curvature, no shift is left, or a strategy refuses its input.
    """
    if not len(context.tuning):
        raise ValueError(
            "selection='auto': found no held-out data to compare candidates on, expected at least one example; give "
            "more calibration data"
        )
    options = context.options
    names = accepted_shifts(context.job.network, context.tuning.inputs, context.job.config.seed, options.shifts)
    choosing, judging = split_shifts(names) if options.shifts is None else (names, names)
    proposals = propose(replace(context, options=replace(options, shifts=choosing)))
    scores = score_candidates(replace(context, options=replace(options, shifts=judging)), proposals)
    place, prices = decide(context, proposals, scores)
    scores = tuple(
        replace(score, measured=prices[c].passes) if c in prices else score for c, score in enumerate(scores)
    )
    chosen = proposals[place]
    return replace(
        chosen.subnetwork,
        variance_of=chosen.rule.kind,
        computed=chosen.rule.count(context.job.likelihood.outputs),
        candidates=tuple(replace(score, chosen=c == place) for c, score in enumerate(scores)),
        explanation=explain(scores, place, choosing, judging),
    )


def merit(score: CandidateScore) -> float:
    """shift_log_likelihood + log(shift_auroc), nats."""
    return score.shift_log_likelihood + math.log(max(score.shift_auroc, LEAST_AUROC))


def decide(
    context: AutoContext, proposals: Sequence[Proposal], scores: Sequence[CandidateScore]
) -> tuple[int, dict[int, Price]]:
    """The place of the candidate to take, and the prices that were measured on the way, by place.

    Of those whose merit is nearly the best, one for each of the lowest counted costs is timed, and the cheapest taken.
    A network that takes less than 50 microseconds counts as taking so long (`Timing.weighed`).
    Where all of them are dearer than `max_cost`, their parts of the network are left out, with the variances that they
    compute, and the others compared.
    Where nothing keeps to the limit: `ValueError` if the user gave it, and otherwise the cheapest.
    """
    config, rest = context.job.config, list(range(len(scores)))
    most = TIMING_ERROR * (USUAL_COST if config.max_cost is None else config.max_cost)
    prices: dict[int, Price] = {}
    while rest:
        alike = nearly_best(scores, config.uncertainty_budget, rest)
        if context.measure is None:
            return alike[0], prices
        finalists = _firsts(scores, alike)
        prices |= {c: context.measure(proposals[c].subnetwork.indices, proposals[c].rule) for c in finalists}
        if fitting := [c for c in finalists if prices[c].weighed <= most]:
            return min(fitting, key=lambda c: (round(prices[c].weighed, 1), -merit(scores[c]), c)), prices
        dear = {(proposals[c].subnetwork.within, proposals[c].rule) for c in finalists}
        rest = [c for c in rest if (proposals[c].subnetwork.within, proposals[c].rule) not in dear]
    least = min(prices, key=lambda c: prices[c].weighed)
    if config.max_cost is not None:
        raise ValueError(
            f"max_cost: found {config.max_cost:g} forward passes, expected at least {prices[least].weighed:.2g}, the "
            f"measured price of {scores[least].name}; fewer weights (subnetwork_size) cost less"
        )
    return least, prices


def nearly_best(scores: Sequence[CandidateScore], budget: float, among: Sequence[int]) -> list[int]:
    """Of the candidates `among`, those whose merit is within `MARGIN` of the best, the cheapest to serve first.

    A candidate that cannot keep to the budget is taken only where none can. Costs that are equal to a tenth of a
    forward pass: the larger merit, then the earlier place.
    """
    affordable = [c for c in among if scores[c].cost <= budget] or list(among)
    best = max(merit(scores[c]) for c in affordable)
    alike = [c for c in affordable if merit(scores[c]) >= best - MARGIN]
    return sorted(alike, key=lambda c: (round(scores[c].forward_passes, 1), -merit(scores[c]), c))


def _firsts(scores: Sequence[CandidateScore], places: Sequence[int]) -> list[int]:
    """The first place for each of the lowest counted costs, at most `FINALISTS`."""
    first = {round(scores[c].forward_passes, 1): c for c in reversed(places)}
    return [first[cost] for cost in sorted(first)][:FINALISTS]


def explain(scores: tuple[CandidateScore, ...], place: int, choosing: Sequence[str], judging: Sequence[str]) -> str:
    """One sentence on the choice, what came next to it, and the shifts by which weights were chosen and judged."""
    chosen = scores[place]
    parts = [f"{chosen.name}: log-likelihood under {_listed(judging)} {chosen.shift_log_likelihood:.2f}"]
    others = [score for c, score in enumerate(scores) if c != place]
    if others:
        other = max(others, key=merit)
        word = "next best" if merit(other) <= merit(chosen) else "best"
        parts.append(f" ({word} {other.shift_log_likelihood:.2f}, {other.name})")
    price = chosen.measured or chosen.forward_passes
    parts.append(f", AUROC {chosen.shift_auroc:.2f}, {price:.1f} forward passes an example")
    if chosen.judged < chosen.size:
        parts.append(f", judged on {chosen.judged} of {chosen.size} weights")
    seen = "the same shifts" if tuple(choosing) == tuple(judging) else _listed(choosing)
    return "".join([*parts, f"; strategies chose weights by {seen}"])


def _listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
