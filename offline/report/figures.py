"""Figures of the report about held-out data: arrays in, a `Picture` with its caption out."""

import math

import numpy as np
from matplotlib.axes import Axes

from demur.service.maths.scores import SCORES

from ..evaluation.diagnostics import Reliability, coverage_curve
from ..runtime.arrays import Array
from .style import BLUE, GREY, VERMILLION, Picture, count_axis, mark_x, mark_y, name_lines, render, thinned

LEVELS: Array = np.linspace(0.05, 0.95, 19)


def reliability_picture(plain: Reliability, full: Reliability, beside: str) -> Picture:
    """Accuracy against confidence, without weight uncertainty, called `beside`, and with it, above the examples in each
    bin."""

    def paint(axes: Axes, counts: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.2, label="perfect")
        for curve, name, colour, style in ((plain, beside, VERMILLION, "s--"), (full, "Demur", BLUE, "o-")):
            axes.plot(curve.confidence, curve.accuracy, style, color=colour, label=f"{name}, ECE {curve.ece:.3f}")
            counts.plot(curve.confidence, curve.count, style, color=colour, markersize=4, linewidth=1)
        axes.set(ylabel="Accuracy", ylim=(-0.03, 1.03))
        name_lines(axes)
        count_axis(counts, max(plain.count.max(), full.count.max()))
        counts.set(xlabel="Confidence (probability of the most probable class)", ylabel="Examples")
        counts.set_xlim(min(plain.confidence[0], full.confidence[0]) - 0.05, 1.02)

    return Picture(
        "Reliability",
        render(paint, (0.85, 0.35)),
        f"Reliability diagram: accuracy against confidence. Expected calibration error {plain.ece:.3f} for the "
        f"{beside}, {full.ece:.3f} for Demur.",
        "Below the dotted line the model is surer than it should be, above it less sure; points with few examples "
        "(lower panel) scatter.",
    )


def score_axis(name: str) -> str:
    """The label of an axis with a score."""
    if (score := SCORES.get(name)) is None:
        return f"{name.capitalize()} score"
    return f"{score.title.capitalize()} ({score.unit})" if score.unit else score.title.capitalize()


def score_picture(scores: Array, threshold: float, kind: str) -> Picture:
    """Histogram of the held-out scores with the reject threshold."""
    bins = int(np.clip(2 * math.sqrt(len(scores)), 10, 40))
    low = min(0.0, float(scores.min()))
    edges = np.linspace(low, max(float(scores.max()), low + 1e-12), bins + 1)
    rejected = scores > threshold

    def paint(axes: Axes) -> None:
        axes.hist(
            [scores[~rejected], scores[rejected]],
            edges.tolist(),
            stacked=True,
            color=[BLUE, VERMILLION],
            label=["accepted", "rejected"],
            hatch=["", "///"],
            edgecolor="white",
            linewidth=0.5,
        )
        if math.isfinite(threshold):
            mark_x(axes, threshold, f"threshold, {threshold:.3g}")
        axes.set(xlabel=score_axis(kind), ylabel="Held-out examples")
        count_axis(axes, np.histogram(scores, edges)[0].max())
        name_lines(axes)

    return Picture(
        "Scores",
        render(paint),
        f"Histogram of the scores of {len(scores)} held-out examples; {rejected.sum()} lie above the threshold "
        f"{threshold:.4g}.",
        "Each bar counts held-out examples by score, on a logarithmic axis; an input whose score lies right of the "
        "threshold is rejected.",
    )


def rejection_picture(share: Array, quality: Array, in_use: float, label: str) -> Picture:
    """Quality of the accepted examples against the share rejected."""
    shown = thinned(len(share))

    def paint(axes: Axes) -> None:
        axes.plot(100 * share[shown], quality[shown], color=BLUE, label="by score")
        mark_y(axes, float(quality[0]), "nothing rejected", ":")
        mark_x(axes, 100 * in_use, f"in use, {100 * in_use:.1f} %")
        axes.set(xlabel="Held-out examples rejected (%)", ylabel=label)
        name_lines(axes)

    return Picture(
        "Rejection",
        render(paint),
        f"{label} against the share rejected: {quality[0]:.4g} when nothing is rejected, "
        f"{np.interp(in_use, share, quality):.4g} with the threshold in use.",
        "If the score finds the mistakes, what is left gets better from left to right; at the far right only a few "
        "examples are left and the curve scatters.",
    )


def coverage_picture(mean: Array, std: Array, targets: Array) -> Picture:
    """Share of targets inside the central interval, against its nominal level."""
    covered = coverage_curve(mean, std, targets, LEVELS)

    def paint(axes: Axes) -> None:
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", linewidth=1.2, label="perfect")
        axes.plot(100 * LEVELS, 100 * covered, "o-", color=BLUE, markersize=4, label="Demur")
        axes.set(xlabel="Nominal level of the interval (%)", ylabel="Targets inside (%)")
        name_lines(axes)

    return Picture(
        "Interval coverage",
        render(paint),
        f"Empirical against nominal coverage: the 95 % interval holds {100 * covered[-1]:.1f} % of held-out targets.",
        "Below the dotted line the intervals are too narrow, above it too wide.",
    )


def residual_picture(mean: Array, std: Array, targets: Array) -> Picture:
    """Residuals against the predictive standard deviation."""
    shown = thinned(mean.size)
    spread, residual = std.ravel()[shown], (targets - mean).ravel()[shown]
    outside = float((np.abs(targets - mean) > 1.96 * std).mean())

    def paint(axes: Axes) -> None:
        edge = np.array([spread.min(), spread.max()])
        axes.scatter(spread, residual, s=20, color=BLUE, alpha=0.6, linewidths=0, label="held-out target")
        for sign in (-1, 1):
            label = "±1.96 standard deviations" if sign > 0 else None
            axes.plot(edge, sign * 1.96 * edge, color=VERMILLION, linestyle="--", label=label)
        axes.set(xlabel="Predictive standard deviation (target's units)", ylabel="Residual (target's units)")
        name_lines(axes)

    return Picture(
        "Residuals",
        render(paint),
        f"Residuals against predictive standard deviation; {100 * outside:.1f} % lie outside 1.96 standard deviations.",
        "About 5 % of the points should lie outside the dashed lines, at every standard deviation.",
    )
