"""How figures of the report look, and how they become text: SVG in a data URI, the same bytes for the same data."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's palette tells apart under every common colour blindness; line styles and markers differ as well.
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
MAX_POINTS = 1500  # more would only make the file large
WIDTH, HEIGHT = 5.4, 3.5  # inches; text stays readable when a telephone shrinks the figure to 340 pixels
STYLE: dict[str, Any] = {
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the first comes with matplotlib: all measure alike
    "svg.fonttype": "none",  # text stays text: glyphs as outlines would treble the page
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "savefig.transparent": True,
    "svg.hashsalt": "demur",  # ids would be random without
}


@dataclass(frozen=True)
class Picture:
    """A figure for the page: `source` is a data URI, `alt` replaces it, `caption` says how to read it."""

    title: str
    source: str
    alt: str
    caption: str


def render(paint: Callable[..., None], heights: Sequence[float] = (1.0,)) -> str:
    """The data URI of what `paint` draws on as many axes (one below another, sharing x) as there are `heights`.

    The user's own matplotlib settings have no say, so that every machine with the same matplotlib makes the same bytes.
    """
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH, HEIGHT * sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=list(heights))
        paint(*axes[:, 0])
        figure.align_ylabels()
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()


def name_lines(axes: Axes) -> None:
    """The legend, above the axes, where it hides no data, and at the right, where no power of ten stands."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1.01), ncols=2, borderaxespad=0, handlelength=2.4)


def count_axis(axes: Axes, largest: float) -> None:
    """A logarithmic y axis for numbers of examples, at least a decade long so that it has labels."""
    axes.set(yscale="log", ylim=(0.7, 1.4 * max(10.0, largest)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def mark_x(axes: Axes, x: float, label: str) -> None:
    """A vertical line that the legend names."""
    axes.axvline(x, color=GREEN, linestyle="-.", label=label)


def mark_y(axes: Axes, y: float, label: str, style: str = "--", colour: str = GREY) -> None:
    """A horizontal line that the legend names."""
    axes.axhline(y, color=colour, linestyle=style, linewidth=1.4, label=label)


def thinned(count: int) -> npt.NDArray[Any]:
    """At most `MAX_POINTS` positions spread evenly over `count`, the first and the last among them."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, MAX_POINTS)).round().astype(int))
