"""Figures of the report about the fit itself: the search for the prior precision, the curvature."""

import numpy as np
from matplotlib.axes import Axes

from demur.service.bundle import Prior, Tried

from ..evaluation.diagnostics import effective_dimension
from ..runtime.arrays import Array
from .style import BLUE, GREEN, Picture, mark_x, mark_y, name_lines, render, thinned


def prior_picture(prior: Prior, tried: Tried) -> Picture | None:
    """Held-out log-likelihood and log evidence against the prior precision; None where neither was computed."""
    curves = [
        ("Log-likelihood\n(nats an example)", tried.log_likelihood, _reference_lines(prior, tried)),
        ("Log evidence\n(nats)", tried.log_evidence, {}),
    ]
    drawn = [(label, np.array(values), lines) for label, values, lines in curves if values is not None]
    if not drawn:
        return None

    def paint(*panels: Axes) -> None:
        for axes, (label, values, lines) in zip(panels, drawn, strict=True):
            axes.plot(tried.precisions, values, color=BLUE, label="values tried")
            for (name, style), y in lines.items():
                mark_y(axes, y, name, style)
            mark_x(axes, prior.precision, f"chosen, {prior.precision:.3g}")
            axes.set(xscale="log", ylabel=label, ylim=_upper_part(values, list(lines.values())))
        name_lines(panels[0])
        panels[-1].set_xlabel("Prior precision λ (per squared weight)")

    names = " and ".join(label.split("\n")[0].lower() for label, _, _ in drawn)
    return Picture(
        "Values tried",
        render(paint, [0.85] * len(drawn) if len(drawn) > 1 else [1.0]),
        f"Curve of the {names} against the prior precision from {min(tried.precisions):.3g} to "
        f"{max(tried.precisions):.3g}; the chosen value is {prior.precision:.4g}.",
        "Left is more uncertainty, right less: higher is better, the vertical line is the value chosen, and values far "
        "below the best are cut off.",
    )


def _reference_lines(prior: Prior, tried: Tried) -> dict[tuple[str, str], float]:
    """What the log-likelihood is compared with: the plain network and the lowest value that the budget allows."""
    lines, values = {}, list(tried.log_likelihood or ())
    if tried.plain_log_likelihood is not None:
        values.append(tried.plain_log_likelihood)
        lines["plain network", ":"] = tried.plain_log_likelihood
    if prior.budget is not None and values:
        lines[f"budget, {prior.budget:g} nats", "--"] = max(values) - prior.budget
    return lines


def _upper_part(values: Array, lines: list[float]) -> tuple[float, float]:
    """Limits of the y axis around the better half of the values and every line."""
    top = max([values.max(), *lines])
    low = max(values.min(), 2 * np.median(values) - top)
    low = min([low, *lines])
    margin = 0.08 * (top - low) or 1e-6 + 0.01 * abs(top)
    return float(low - margin), float(top + margin)


def spectrum_picture(eigenvalues: Array, prior_precision: float) -> Picture:
    """Eigenvalues of the curvature in descending order, with the prior precision in use."""
    values = np.sort(eigenvalues)[::-1]
    positive = values[values > values[0] * len(values) * np.finfo(np.float64).eps]  # the rest is rounding
    shown = thinned(len(positive))
    dimension = effective_dimension(eigenvalues, prior_precision)
    zeros = len(values) - len(positive)

    def paint(axes: Axes) -> None:
        axes.plot(shown + 1, positive[shown], color=BLUE, label="curvature")
        mark_y(axes, prior_precision, f"prior, λ_S = {prior_precision:.3g}", "-.", GREEN)
        axes.set(xlabel="Direction, by rank", ylabel="Eigenvalue (per squared weight)", yscale="log")
        axes.set_xlim(0, len(values) + 1)
        name_lines(axes)

    left_out = f" (eigenvalues of zero, not drawn: {zeros})" if zeros else ""
    return Picture(
        "Spectrum of the curvature",
        render(paint),
        f"Eigenvalues of the curvature from {values[0]:.3g} down, on a logarithmic axis, with the prior precision "
        f"{prior_precision:.3g}.",
        "Directions above the line are determined by the data, directions below it by the prior: "
        f"{dimension:.1f} of {len(values)} effectively by the data{left_out}.",
    )
