"""Rotated MNIST and corrupted CIFAR-10: every method at every shift, prices, foreign images, and the ordering."""

from typing import Any

from paper.corruptions.registry import CORRUPTIONS, STAND_INS
from paper.images.plot import TITLES
from paper.images.summary import (
    PUBLISHED_ROWS,
    SEEN_KINDS,
)
from paper.page.findings import MARK, marked, what_it_comes_to
from paper.page.markdown import folded, number, signed, size, table
from paper.page.ordering import UNITS, orderings
from paper.page.results import picture, source
from paper.page.steps import steps
from paper.published import image_tables, ood_auroc

METRICS = {"log_likelihood": "Log-likelihood (nats)", "error": "Error", "ece": "ECE", "brier": "Brier score"}
SHOWN = {"rotated_mnist": (0, 45, 60, 90, 180), "corrupted_cifar10": (0, 1, 3, 5)}
FOREIGN = {"rotated_mnist": ("MNIST", "FashionMNIST"), "corrupted_cifar10": ("CIFAR10", "SVHN")}
CORRUPTED = (
    f"Every test image has one of {len(CORRUPTIONS)} corruptions, in equal numbers, and keeps it at all five levels: "
    "an estimate without bias of the mean error, log-likelihood and Brier score over all images and corruptions; the "
    "ECE is that of all corruptions together, and not the mean of theirs. They are generated from the definitions of "
    "Hendrycks and Dietterich (ICLR 2019), in the selection of Ovadia et al. (2019), with stand-ins: "
    + "; ".join(f"{name}: {what}" for name, what in STAND_INS.items())
    + ".\n"
)


def section(result: dict[str, Any]) -> str:
    """One experiment at one size."""
    published, scale = result["published"], result["scale"]
    seeds = len(result["runs"])
    text = [
        f"## {TITLES[published]}: {scale['network']}\n",
        f"D = {result['weights']:,}, S = {scale['size']:,}, {scale['train']:,} training images for {scale['epochs']} "
        f"epochs, {scale['curvature']:,} of them for the curvature, the first {scale['test']:,} test images, {seeds} "
        f"{'seed, so that small differences mean nothing' if seeds == 1 else 'seeds'}. The paper: ResNet-18, D = 11.2 "
        "million, S = 42,438, three seeds.\n",
        *([CORRUPTED] if published == "corrupted_cifar10" else []),
        source(result),
        picture(result, TITLES[published]),
        what_it_comes_to(result),
        *steps(result),
        *orderings(result),
        "### Quality and price\n",
        _prices(result),
        "### The paper's tables\n",
        "Each cell: ours (the paper's; difference) where the paper has the method. The networks differ, so compare the "
        "rows with each other first.\n",
        *(_published(result, metric) for metric in METRICS),
        *([_kinds(result)] if published == "corrupted_cifar10" else []),
        "### Foreign images\n",
        _foreign(result),
    ]
    return "\n".join(text)


def _prices(result: dict[str, Any]) -> str:
    """All rows: what each costs at prediction, on disk, in time, and in distribution; what it gains under shift."""
    published = result["published"]
    unit, shown, seeds = UNITS[published], SHOWN[published], len(result["runs"])
    unseen = published == "corrupted_cifar10"
    head = ["method", "passes", "on disk", "fit, s", *(f"{strength}{unit}" for strength in shown)]
    head += ["5, unseen kinds"] if unseen else []
    (foreign,) = next(iter(result["summary"]["rows"].values()))["auroc"]
    rows = []
    for label, row in result["summary"]["rows"].items():
        cells = [marked(label, row) + ("" if row["seeds"] == seeds else f" ({row['seeds']} seed)")]
        cells += [f"{row['price']['mean']:.3g}", size(row["bytes"]["mean"]), f"{row['fit_seconds']['mean']:.0f}"]
        cells += [_spread(row["shifts"][str(strength)]["log_likelihood"]) for strength in shown]
        if unseen:
            cells.append(_spread(row["unseen_log_likelihood"]["5"]))
        rows.append([*cells, _spread(row["auroc"][foreign], 3)])
    return "\n".join(
        [
            "Log-likelihood by shift, mean and standard deviation over seeds; AUROC of the predictive entropy; passes: "
            "processor time of a prediction of 16 images over the plain network's, in torch, for bundles in "
            "onnxruntime; on disk: weights, posterior and, of a bundle, its graph; fit: seconds beyond the training of "
            "one network.\n",
            table([*head, f"AUROC {foreign}"], rows),
            _seen_note(published),
        ]
    )


def _seen_note(published: str) -> str:
    if published == "rotated_mnist":
        return f"{MARK} judged candidates by rotation too: leave it out of rankings.\n"
    return (
        f"{MARK} chosen by or judged on synthetic noise and blur, which resemble some of the corruptions; the last "
        f"log-likelihood leaves all of these out, for every row: {', '.join(SEEN_KINDS)}.\n"
    )


def _spread(value: dict[str, float | None], digits: int = 2) -> str:
    mean, std = value["mean"], value["std"]
    assert mean is not None
    return number(mean, digits) + ("" if std is None else f" ± {number(std, digits)}")


def _published(result: dict[str, Any], metric: str) -> str:
    cells, unit = image_tables(), UNITS[result["published"]]
    shifts = [int(strength) for strength in next(iter(result["summary"]["rows"].values()))["shifts"]]
    methods = {label: method for method, label in PUBLISHED_ROWS.items()}
    rows = []
    for label, row in result["summary"]["rows"].items():
        values = [marked(label, row)]
        for strength in shifts:
            own = row["shifts"][str(strength)][metric]["mean"]
            cell = number(own)
            if label in methods:
                theirs = cells[result["published"], strength, metric, methods[label]].mean
                cell += f" ({number(theirs)}; {signed(own - theirs)})"
            values.append(cell)
        rows.append(values)
    return folded(METRICS[metric], table(["method", *(f"{shift}{unit}" for shift in shifts)], rows))


def _kinds(result: dict[str, Any]) -> str:
    """Log-likelihood of every corruption at every level, of the main rows."""
    parts = []
    for label, row in result["summary"]["rows"].items():
        levels = list(row["kinds"])
        kinds = list(row["kinds"][levels[0]])
        rows = [[kind, *(number(row["kinds"][level][kind]) for level in levels)] for kind in kinds]
        parts.append(folded(marked(label, row), table(["corruption", *levels], rows)))
    return folded("Log-likelihood by corruption and level", "\n".join(parts))


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
        comparable = name in ("Fashion-MNIST", "SVHN")
        paper = [number(cell.mean) if cell else "", signed(own["mean"] - cell.mean) if cell and comparable else ""]
        rows.append([label, _spread(own, 3), *paper, f"{100 * accepted:.1f} %"])
    stands_in = (
        ""
        if name in ("Fashion-MNIST", "SVHN")
        else f"\n{name} stands in for the paper's SVHN, whose figures are beside it for orientation only.\n"
    )
    head = ["method", f"AUROC {name}", f"the paper's ({data[1]})", "difference", "accuracy after rejecting half"]
    return table(head, rows) + stands_in
