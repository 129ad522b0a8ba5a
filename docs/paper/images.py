"""Rotated MNIST and corrupted CIFAR-10: every method at every shift, prices, foreign images, and the ordering."""

from typing import Any

from benchmarks.experiments.paper.images.plot import TITLES
from benchmarks.experiments.paper.images.summary import OURS_BY_PAPER, PUBLISHED_ROWS, SEEN_KINDS, STRONG
from benchmarks.experiments.paper.published import image_tables, ood_auroc
from docs.paper.markdown import folded, listed, number, signed, size, table
from docs.paper.results import picture, source

METRICS = {"log_likelihood": "Log-likelihood (nats)", "error": "Error", "ece": "ECE", "brier": "Brier score"}
UNITS = {"rotated_mnist": "°", "corrupted_cifar10": ""}
SHOWN = {"rotated_mnist": (0, 45, 60, 90, 180), "corrupted_cifar10": (0, 1, 3, 5)}
FOREIGN = {"rotated_mnist": ("MNIST", "FashionMNIST"), "corrupted_cifar10": ("CIFAR10", "SVHN")}
MARK = "\\*"


def section(result: dict[str, Any]) -> str:
    """One experiment at one size."""
    published, scale = result["published"], result["scale"]
    seeds = len(result["runs"])
    text = [
        f"## {TITLES[published]}: {scale['network']}\n",
        f"D = {result['weights']:,}, S = {scale['size']:,}, {scale['train']:,} training images for {scale['epochs']} "
        f"epochs, {scale['curvature']:,} of them for the curvature, {scale['test']:,} test images for each shift, "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}. "
        "The paper: ResNet-18, D = 11.2 million, S = 42,438, three seeds.\n",
        source(result),
        picture(result, TITLES[published]),
        ordering(result),
        "### Quality and price\n",
        _prices(result),
        "### The paper's tables\n",
        "Each cell: ours (the paper's; difference). The networks differ, so compare the rows with each other first.\n",
        *(_published(result, metric) for metric in METRICS),
        "### Foreign images\n",
        _foreign(result),
    ]
    return "\n".join(text)


def ordering(result: dict[str, Any]) -> str:
    """Where the log-likelihood of ours is above that of the paper's other methods under strong shift, and where not."""
    unit, shifts = UNITS[result["published"]], STRONG[result["published"]]
    lines = []
    for label in dict.fromkeys(one["against"] for one in result["summary"]["ordering"]):
        own = [one for one in result["summary"]["ordering"] if one["against"] == label]
        behind = [one for one in own if one["gain"]["mean"] <= 0]
        gains = [one["gain"]["mean"] for one in own]
        verdict = f"above at every shift, by {number(min(gains))} to {number(max(gains))} nats"
        if behind:
            where = listed([f"{one['shift']}{unit}" for one in behind])
            verdict = f"not above at {where} ({signed(min(gains))} to {signed(max(gains))} nats)"
        lines.append(f"* {label}: {verdict}.")
    low, high = f"{shifts[0]}{unit}", f"{shifts[-1]}{unit}"
    title = f"**The paper's ordering under strong shift** ({low} to {high})"
    return f"{title}: log-likelihood of `{OURS_BY_PAPER}` against\n\n" + "\n".join(lines) + "\n"


def _prices(result: dict[str, Any]) -> str:
    """All rows: what each costs at prediction, in memory, in time, and in distribution; what it gains under shift."""
    published = result["published"]
    unit, shown, seeds = UNITS[published], SHOWN[published], len(result["runs"])
    unseen = published == "corrupted_cifar10"
    head = ["method", "passes", "memory", "fit, s", *(f"{strength}{unit}" for strength in shown)]
    head += ["5, unseen kinds"] if unseen else []
    (foreign,) = next(iter(result["summary"]["rows"].values()))["auroc"]
    rows = []
    for label, row in result["summary"]["rows"].items():
        cells = [label + (MARK if row["seen"] else "") + ("" if row["seeds"] == seeds else f" ({row['seeds']} seed)")]
        cells += [f"{row['price']['mean']:.3g}", size(row["bytes"]["mean"]), f"{row['fit_seconds']['mean']:.0f}"]
        cells += [_spread(row["shifts"][str(strength)]["log_likelihood"]) for strength in shown]
        if unseen:
            cells.append(_spread(row["unseen_log_likelihood"]["5"]))
        rows.append([*cells, _spread(row["auroc"][foreign], 3)])
    return "\n".join(
        [
            "Log-likelihood by shift, mean ± standard deviation over seeds; AUROC of the predictive entropy; "
            "passes: measured time of a prediction of 16 images over the plain network's, in torch, for bundles in "
            "onnxruntime; "
            "memory: weights and posterior; fit: seconds beyond the training of one network.\n",
            table([*head, f"AUROC {foreign}"], rows),
            _seen_note(published),
        ]
    )


def _seen_note(published: str) -> str:
    if published == "rotated_mnist":
        return f"{MARK} `auto` judged its candidates by rotation too: leave this row out of rankings.\n"
    return (
        f"{MARK} chosen by or judged on synthetic noise and blur, which resemble some of the corruptions; the last "
        f"log-likelihood leaves all of these out, for every row: {', '.join(SEEN_KINDS)}.\n"
    )


def _spread(value: dict[str, float], digits: int = 2) -> str:
    return f"{number(value['mean'], digits)} ± {number(value['std'], digits)}"


def _published(result: dict[str, Any], metric: str) -> str:
    cells, unit = image_tables(), UNITS[result["published"]]
    shifts = [int(strength) for strength in next(iter(result["summary"]["rows"].values()))["shifts"]]
    rows = []
    for method, label in PUBLISHED_ROWS.items():
        row = result["summary"]["rows"].get(label)
        if row is None:
            continue
        values = [label]
        for strength in shifts:
            own = row["shifts"][str(strength)][metric]["mean"]
            theirs = cells[result["published"], strength, metric, method].mean
            values.append(f"{number(own)} ({number(theirs)}; {signed(own - theirs)})")
        rows.append(values)
    return folded(METRICS[metric], table(["method", *(f"{shift}{unit}" for shift in shifts)], rows))


def _foreign(result: dict[str, Any]) -> str:
    """AUROC beside the paper's, and the accuracy of what is accepted."""
    data, theirs = FOREIGN[result["published"]], ood_auroc()
    (name,) = next(iter(result["summary"]["rows"].values()))["auroc"]
    rows = []
    for method, label in PUBLISHED_ROWS.items():
        row, cell = result["summary"]["rows"].get(label), theirs.get((*data, method))
        if row is None:
            continue
        own = row["auroc"][name]
        accepted = row["accuracy_when_rejecting"][name][10]
        paper = [number(cell.mean), signed(own["mean"] - cell.mean)] if cell else ["", ""]
        rows.append([label, _spread(own, 3), *paper, f"{100 * accepted:.1f} %"])
    stands_in = (
        "" if name in ("Fashion-MNIST", "SVHN") else f" {name} stands in for the paper's SVHN: compare no digits.\n"
    )
    head = ["method", f"AUROC {name}", f"the paper's ({data[1]})", "difference", "accuracy after rejecting half"]
    return table(head, rows) + stands_in
