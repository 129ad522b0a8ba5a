"""What users give as a model: a module of torch, the path of an ONNX file, or a perceptron of scikit-learn."""

import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from torch import Tensor, nn

from probity.offline.network.onnx_network import load_onnx
from probity.offline.network.sklearn_network import PERCEPTRONS, SCALERS, from_sklearn
from probity.offline.network.unsupported import UnsupportedModelError

TREES = ("xgboost", "lightgbm", "catboost", "sklearn.ensemble", "sklearn.tree")
EXPECTED = (
    f"a trained network: a torch.nn.Module, the path of an .onnx file, or scikit-learn's {' or '.join(PERCEPTRONS)}"
)


def network_of(model: object, where: str = "model") -> nn.Module:
    """As a module of torch. where: what to call it in errors.

    Raises `TypeError` for what holds no network, with what to give instead, and `UnsupportedModelError` for a network
    that cannot be read.
    """
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, str | os.PathLike):
        return _from_file(model, where)
    if isinstance(model, onnx.ModelProto):
        return load_onnx(model)
    package = type(model).__module__
    if package.startswith(TREES):
        raise TypeError(
            f"{where}: found {type(model).__name__}, expected {EXPECTED}. Trees have no weights that outputs can be "
            "differentiated in, so there is no posterior over them: train a network on the same columns (probity new "
            "table), or keep the trees and set thresholds on their own probabilities by conformal prediction "
            "(crepes, MAPIE), which says nothing of inputs unlike the training data"
        )
    if package.startswith("sklearn."):
        steps = [type(step).__name__ for _, step in getattr(model, "steps", [(None, model)])]
        if steps[-1] in PERCEPTRONS:
            return from_sklearn(model)
        raise TypeError(
            f"{where}: found {type(model).__name__}, whose last step is {steps[-1]}, expected {EXPECTED}, alone "
            f"or in a Pipeline behind {', '.join(SCALERS)}"
        )
    raise TypeError(f"{where}: found {_kind(model)}, expected {EXPECTED}{_remedy(model)}")


def class_names_of(model: object, outputs: int) -> tuple[str, ...] | None:
    """The names that the model itself has for its outputs: transformers' `config.id2label` where they are none of its
    own making ("LABEL_0"), or scikit-learn's `classes_`; None for other numbers of them."""
    labels = getattr(getattr(model, "config", None), "id2label", None)
    classes = getattr(model, "classes_", None)
    found: tuple[str, ...] = ()
    if isinstance(labels, Mapping) and sorted(labels) == list(range(len(labels))):
        found = tuple(str(labels[place]) for place in sorted(labels))
        found = () if all(name == f"LABEL_{place}" for place, name in enumerate(found)) else found
    elif classes is not None and hasattr(classes, "tolist"):
        found = tuple(map(str, classes.tolist()))
    return found if len(set(found)) == len(found) == outputs and all(found) else None


def _from_file(path: str | os.PathLike[str], where: str) -> nn.Module:
    if Path(path).suffix.lower() == ".onnx":
        if not Path(path).is_file():
            raise UnsupportedModelError(f"{where}: {path}: no such file")
        return load_onnx(Path(path))
    raise TypeError(
        f"{where}: found {type(path).__name__} {str(path)!r:.200}, expected {EXPECTED}; weights of torch are loaded "
        "into the network that they belong to: network.load_state_dict(torch.load(path, weights_only=True))"
    )


def _remedy(model: object) -> str:
    if isinstance(model, Mapping) and all(isinstance(value, Tensor) for value in model.values()):
        return "; load this state into a network first: network.load_state_dict(state)"
    if isinstance(model, type) and issubclass(model, nn.Module):
        return f"; give an instance: {model.__name__}(...)"
    return ""


def _kind(model: object) -> str:
    return f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
