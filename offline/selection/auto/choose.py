"""`auto`: compare several subnetworks on a small scale, and keep the best or a cheaper one that is nearly as good.

No strategy wins everywhere, and a large variance alone is no merit: an uncertainty is good when it leaves ordinary
data alone, makes wrong predictions of shifted data less sure, and tells the two apart. So every candidate may cost the
same on held-out data (the uncertainty budget), and is then judged on synthetic shifts of it:

    merit = shift_log_likelihood + log(shift_auroc)        in nats

the mean log-probability of the true label under shift plus that of telling a shifted example from an ordinary one;
differences do not depend on the units of a regression's targets. Candidates within `MARGIN` of the best are alike, and
the cheapest of them to serve is taken, by a count (`offline.selection.auto.price`): no clock decides, so that a fit
gives the same choice on a busy machine.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from offline.data.shifts import accepted_shifts, split_shifts
from offline.selection.auto.candidates import propose
from offline.selection.auto.context import AutoContext
from offline.selection.auto.score import score_candidates
from offline.selection.subnetwork import CandidateScore, Subnetwork

MARGIN = 0.02  # nats; of the order of the error that some hundred examples leave in the merit
LEAST_AUROC = 1e-3
LEFT_OUT = "; effort='quick' compared weights of the last layers only, effort='thorough' searches the whole network"


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
    names = accepted_shifts(context.job.network, context.judged.inputs, context.job.config.seed, options.shifts)
    choosing, judging = split_shifts(names) if options.shifts is None else (names, names)
    proposals = propose(replace(context, options=replace(options, shifts=choosing)))
    scores = score_candidates(replace(context, options=replace(options, shifts=judging)), proposals)
    place = nearly_best(scores, context.job.config.budget)[0]
    chosen = proposals[place]
    return replace(
        chosen.subnetwork,
        variance_of=chosen.rule.kind,
        computed=chosen.rule.count(context.job.likelihood.outputs),
        candidates=tuple(replace(score, chosen=c == place) for c, score in enumerate(scores)),
        explanation=explain(scores, place, choosing, judging) + (LEFT_OUT if context.left_out else ""),
    )


def merit(score: CandidateScore) -> float:
    """shift_log_likelihood + log(shift_auroc), nats."""
    return score.shift_log_likelihood + math.log(max(score.shift_auroc, LEAST_AUROC))


def nearly_best(scores: Sequence[CandidateScore], budget: float) -> list[int]:
    """The candidates whose merit is within `MARGIN` of the best, the cheapest to serve first.

    A candidate that cannot keep to the budget is taken only where none can. Costs that are equal to a tenth of a
    forward pass: the larger merit, then the earlier place.
    """
    places = range(len(scores))
    affordable = [c for c in places if scores[c].cost <= budget] or list(places)
    best = max(merit(scores[c]) for c in affordable)
    alike = [c for c in affordable if merit(scores[c]) >= best - MARGIN]
    return sorted(alike, key=lambda c: (round(scores[c].forward_passes, 1), -merit(scores[c]), c))


def explain(scores: tuple[CandidateScore, ...], place: int, choosing: Sequence[str], judging: Sequence[str]) -> str:
    """One sentence on the choice, what came next to it, and the shifts by which weights were chosen and judged."""
    chosen = scores[place]
    parts = [f"{chosen.name}: log-likelihood under {_listed(judging)} {chosen.shift_log_likelihood:.2f}"]
    others = [score for c, score in enumerate(scores) if c != place]
    if others:
        other = max(others, key=merit)
        word = "next best" if merit(other) <= merit(chosen) else "best"
        parts.append(f" ({word} {other.shift_log_likelihood:.2f}, {other.name})")
    parts.append(f", AUROC {chosen.shift_auroc:.2f}, {chosen.forward_passes:.1f} forward passes an example")
    if chosen.judged < chosen.size:
        parts.append(f", judged on {chosen.judged} of {chosen.size} weights")
    seen = "the same shifts" if tuple(choosing) == tuple(judging) else _listed(choosing)
    return "".join([*parts, f"; strategies chose weights by {seen}"])


def _listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
