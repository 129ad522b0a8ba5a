"""What the plots share: PNG, and colours that colour-blind readers tell apart."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
Values = dict[str, Any]

mpl.use("Agg")


def save(figure: Any, path: Path, result: Values, dpi: int = 130) -> None:
    """Write and close the figure; a quick run gets a red warning that its numbers mean nothing."""
    if result["quick"]:
        figure.suptitle("quick run of miniatures: it works; its numbers mean nothing", color="#b00020", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
