"""How much closer than `wasserstein-swag` each strategy comes, and how close to the bound."""

from typing import Any

import numpy as np

BASELINE = "wasserstein-swag"
JUDGED = ("0.03", "0.1")
NOTHING = 1e-8  # nats: closer than this is equal


def cells(runs: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Label of a panel -> (problem, set of points); tests of gap splits repeat those of standard splits."""
    found = {}
    for run in runs:
        for points in run["divergence"][BASELINE]["0.1"]["none"]:
            if points != "training" and not (run["problem"].endswith("-gap") and points == "test"):
                found[f"{run['problem'].partition('-')[0]}, {points}"] = (run["problem"], points)
    return found


def closeness(runs: list[dict[str, Any]], scaling: str, problem: str, points: str) -> dict[str, dict[str, float]]:
    """Strategy -> share -> geometric mean over seeds of KL(baseline) / KL(strategy)."""
    chosen = [run["divergence"] for run in runs if run["problem"] == problem]
    return {
        name: {
            share: geometric(
                [_ratio(d[BASELINE][share][scaling][points], d[name][share][scaling][points]) for d in chosen]
            )
            for share in chosen[0][name]
        }
        for name in chosen[0]
    }


def _ratio(baseline: float, value: float) -> float:
    return max(baseline, NOTHING) / max(value, NOTHING)


def geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Scaling -> how many times closer than the baseline: by panel, and the geometric mean over all panels."""
    panels = cells(runs)
    return {scaling: _scaling(runs, scaling, panels) for scaling in ("subnetwork", "none")} | {
        "networks": {problem: _network(runs, problem) for problem in dict.fromkeys(run["problem"] for run in runs)}
    }


def _scaling(runs: list[dict[str, Any]], scaling: str, panels: dict[str, tuple[str, str]]) -> dict[str, Any]:
    by_panel = {label: closeness(runs, scaling, *where) for label, where in panels.items()}
    names = list(next(iter(by_panel.values())))
    overall = {
        name: {
            share: geometric([found[name][share] for found in by_panel.values()])
            for share in next(iter(by_panel.values()))[name]
        }
        for name in names
    }
    best = {share: _best(overall, share) for share in JUDGED}
    return {"times_closer_than_swag": by_panel, "geometric_mean": overall, "best": best}


def _best(overall: dict[str, dict[str, float]], share: str) -> dict[str, Any]:
    name = max(overall, key=lambda strategy: overall[strategy].get(share, 0.0))
    return {"strategy": name, "times_closer": overall[name][share]}


def _network(runs: list[dict[str, Any]], problem: str) -> dict[str, Any]:
    """Means over seeds: size, degrees of freedom, and on training inputs the bound beside baseline and best."""
    chosen = [run for run in runs if run["problem"] == problem]
    means = {
        key: float(np.mean([run[key] for run in chosen]))
        for key in ("weights", "examples", "sigma_noise", "prior_precision", "degrees_of_freedom")
    }
    training = {
        share: {
            "bound": float(np.mean([run["bound_on_training"][share] for run in chosen])),
            **{name: _training(chosen, name, share) for name in (BASELINE, "leverage", "greedy")},
        }
        for share in JUDGED
    }
    return means | {"divergence_on_training_without_scaling": training}


def _training(runs: list[dict[str, Any]], name: str, share: str) -> float:
    return float(np.mean([run["divergence"][name][share]["none"]["training"] for run in runs]))


def print_table(summary: dict[str, Any]) -> None:
    """Times closer than the baseline at 3 % and 10 %, by panel and overall."""
    for scaling in ("subnetwork", "none"):
        by_panel = summary[scaling]["times_closer_than_swag"]
        print(f"\nprior scaling {scaling}: times closer than {BASELINE} at 3 % / 10 %; {', '.join(by_panel)}, overall")
        for name, overall in summary[scaling]["geometric_mean"].items():
            values = [*(found[name] for found in by_panel.values()), overall]
            print(f"{name:24s} " + "  ".join("/".join(f"{v[s]:.3g}" for s in JUDGED) for v in values))
    for problem, row in summary["networks"].items():
        print(problem, row)
