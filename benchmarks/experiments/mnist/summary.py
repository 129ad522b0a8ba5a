"""Means and spreads over seeds, who is best where, and the paper's own figures beside them."""

from typing import Any

import numpy as np

SHOWN = ("0", "45", "90", "180")
ANGLES = ("0", "15", "30", "45", "60", "90", "120", "150", "180")
FAMILY = ("noise", "blur", "45", "90", "inversion", "erasing")  # what `auto` judges by, here on test digits
AUTOMATIC: dict[str, tuple[str, ...] | None] = {"auto": None, "auto, told of rotation": ("rotation-45", "rotation-90")}
FOREIGN = ("90", "180", "fashion")
# Daxberger et al. 2021, tables of the image experiments: ResNet-18 (D = 11.2 M) on MNIST, S = 42,438 ("Ours").
PAPER: dict[str, Any] = {
    "source": "Daxberger et al. 2021 (ICML), tables of rotated MNIST and of MNIST against Fashion-MNIST, ResNet-18",
    "log_likelihood": {
        "ours, S = 42,438": dict(
            zip(ANGLES, (-0.07, -0.14, -0.42, -1.09, -2.10, -3.35, -3.43, -3.25, -3.32), strict=True)
        ),
        "MAP": dict(zip(ANGLES, (-0.01, -0.05, -0.39, -1.75, -4.29, -7.18, -7.53, -7.41, -7.43), strict=True)),
        "ensemble": dict(zip(ANGLES, (-0.01, -0.04, -0.28, -1.36, -3.60, -6.39, -6.73, -6.88, -7.16), strict=True)),
    },
    "auroc_fashion": {"ours, S = 42,438": 0.92, "MAP": 0.72, "ensemble": 0.90, "SWAG": 0.97},
}


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each network: every strategy's means and standard deviations over seeds, and the verdicts on `auto`."""
    networks = dict.fromkeys(run["network"] for run in runs)
    return {"paper": PAPER} | {name: _network([run for run in runs if run["network"] == name]) for name in networks}


def _network(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for run in runs for name in run["strategies"])
    table = {name: _strategy([run["strategies"][name] for run in runs if name in run["strategies"]]) for name in names}
    return {
        "seeds": len(runs),
        "weights": runs[0]["weights"],
        "accuracy": _spread([run["accuracy"] for run in runs]),
        "strategies": table,
        "auto": [_verdict(run, name, score) for run in runs for name in AUTOMATIC for score in SCORES],
    }


def _strategy(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "log_likelihood": {k: _spread([r["log_likelihood"][k] for r in rows]) for k in rows[0]["log_likelihood"]},
        **{name: _spread([score(r) for r in rows]) for name, score in SCORES.items()},
        "auroc": {k: _spread([r["auroc"][k] for r in rows]) for k in rows[0]["auroc"]},
        "forward_passes": _spread([r["forward_passes"] for r in rows]),
    }


def rotated(row: dict[str, Any]) -> float:
    """Mean log-likelihood over all angles but 0."""
    return float(np.mean([row["log_likelihood"][angle] for angle in ANGLES if angle != "0"]))


def every_shift(row: dict[str, Any]) -> float:
    """Mean log-likelihood over the kinds of shift that `auto` judges by."""
    return float(np.mean([row["log_likelihood"][name] for name in FAMILY]))


SCORES = {"rotated": rotated, "every_shift": every_shift}


def _verdict(run: dict[str, Any], name: str, score: str) -> dict[str, Any]:
    """How far `auto` is from the best strategy under shift, as a share; and against wasserstein-swag."""
    others = {n: row for n, row in run["strategies"].items() if n not in AUTOMATIC and n != "plain network"}
    scores = {n: SCORES[score](row) for n, row in others.items()}
    best = max(scores, key=lambda other: scores[other])
    mine = SCORES[score](run["strategies"][name])
    return {
        "name": name,
        "seed": run["seed"],
        "score": score,
        "best": best,
        "best_log_likelihood": scores[best],
        "log_likelihood": mine,
        "behind_the_best": (scores[best] - mine) / abs(scores[best]),
        "above_wasserstein_swag": mine - scores["wasserstein-swag"],
        "explanation": run["auto"][name]["explanation"],
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def print_table(summary: dict[str, Any]) -> None:
    """Log-likelihood at 0, 45, 90, 180 degrees; over angles, over kinds; AUROC for 90, 180, Fashion-MNIST; cost."""
    for network, found in summary.items():
        if network == "paper":
            continue
        print(f"\n{network}: D = {found['weights']:,}, {found['seeds']} seeds")
        for name, row in found["strategies"].items():
            scores = [_cell(row["log_likelihood"][angle]) for angle in SHOWN]
            areas = [_cell(row["auroc"][key], 3) for key in FOREIGN]
            print(
                f"{name:32s} {' '.join(scores)} | {' '.join(_cell(row[s]) for s in SCORES)} | {' '.join(areas)} | "
                f"{row['forward_passes']['mean']:.2f}"
            )
        for verdict in found["auto"]:
            print(verdict)


def _cell(value: dict[str, float], digits: int = 2) -> str:
    return f"{value['mean']:7.{digits}f} ±{value['std']:.{digits}f}"
