"""Whether data suit each other and the kind of targets, told without the network."""

from collections.abc import Sequence

from torch import Tensor

from demur.service.format.manifest import Task

from .likelihood import are_labels, likelihood_of


def check_targets_alone(targets: Tensor, task: Task, name: str) -> None:
    """`ValueError` for targets (B, ...) that suit `task` with no number of outputs."""
    outputs = targets.shape[1] if targets.dim() == 2 else 1
    try:
        labels = task == "classification" and are_labels(targets, len(targets), outputs)
        if task == "classification" and not labels:
            outputs = 2 if targets.is_complex() else max(2, int(targets.max()) + 1)
        likelihood_of("multilabel" if labels else task, outputs).check_targets(targets, len(targets))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def check_class_count(names: Sequence[str] | None, targets: Tensor, task: Task) -> None:
    """`ValueError` for fewer names than there are classes in `targets`, or for other numbers than there are columns."""
    if names is None:
        return
    if targets.dim() == 2 and targets.shape[1] > 1:
        if len(names) != targets.shape[1]:
            raise ValueError(f"class_names: found {len(names)} names, expected {targets.shape[1]}, as the targets have")
    elif task == "classification" and int(targets.max()) >= len(names):
        raise ValueError(
            f"class_names: found {len(names)} names, expected a name for each class: the targets have class numbers up "
            f"to {int(targets.max())}"
        )
