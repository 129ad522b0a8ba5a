"""What users give as a model: a module of torch, an ONNX model or its file's path, a perceptron of scikit-learn."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from torch import Tensor, nn

from .onnx_network import OnnxNetwork, load_onnx
from .sklearn_network import PERCEPTRONS, SCALERS, from_sklearn
from .unsupported import IN_ONNX, UnsupportedModelError

TREES = ("xgboost", "lightgbm", "catboost", "sklearn.ensemble", "sklearn.tree")
LOAD = (
    "weights of torch are loaded into the network that they belong to: "
    "network.load_state_dict(torch.load(path, weights_only=True))"
)
KERAS = "a network of Keras is exported to ONNX: network.export(path, format='onnx')"
PICKLED = "an estimator is loaded first: joblib.load(path)"
FILES = {".h5": KERAS, ".keras": KERAS, ".pkl": PICKLED, ".joblib": PICKLED}
EXPECTED = (
    "a trained network: a torch.nn.Module, an onnx.ModelProto, the path of an .onnx file, or scikit-learn's "
    f"{' or '.join(PERCEPTRONS)}"
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
    if _is_tree(model):
        raise TypeError(f"{where}: found {type(model).__name__}, expected {EXPECTED}. {IN_ONNX}")
    if package.startswith("sklearn."):
        return _from_sklearn(model, where)
    raise TypeError(f"{where}: found {_kind(model)}, expected {EXPECTED}{_remedy(model)}")


def unwrapped(model: object) -> object:
    """The model without the wrappers of torch.compile and of several devices."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    inner = getattr(model, "_orig_mod", None)
    return model if inner is None else unwrapped(inner)


def unwrapped_throughout(model: nn.Module) -> nn.Module:
    """The same of every part: inside one that is compiled no hook is called. The given model stays as it is."""
    known: dict[int, nn.Module] = {}

    def plain(module: nn.Module) -> nn.Module:
        if id(module) not in known:
            found = unwrapped(module)
            assert isinstance(found, nn.Module)
            given: dict[str, nn.Module | None] = vars(found)["_modules"]
            parts = {name: part if part is None else plain(part) for name, part in given.items()}
            if any(parts[name] is not part for name, part in given.items()):
                found = copy.copy(found)  # of the same weights
                vars(found)["_modules"] = parts
            known[id(module)] = found
        return known[id(module)]

    return plain(model)


def read_file(model: object) -> object:
    """The network where it is given as a file, which is read once; anything else as it is."""
    return network_of(model) if isinstance(model, str | os.PathLike | onnx.ModelProto) else model


def _is_tree(model: object) -> bool:
    """Whether it is made of trees; an ensemble of other estimators is in the same package."""
    name = type(model).__name__
    of_others = name.startswith(("Voting", "Stacking", "Bagging"))
    return type(model).__module__.startswith(TREES) and not of_others


def _from_sklearn(model: object, where: str) -> nn.Module:
    """A perceptron, alone or as the last step of a Pipeline; `TypeError` for anything else of scikit-learn."""
    step = getattr(model, "steps", [(None, model)])[-1][1]
    kind = type(step).__name__
    if kind in PERCEPTRONS:
        return from_sklearn(model)
    if _is_tree(step):
        raise TypeError(f"{where}: found {kind} in a Pipeline, expected {EXPECTED}. {IN_ONNX}")
    found = kind if step is model else f"{type(model).__name__}, whose last step is {kind}"
    best = "; give its best_estimator_" if hasattr(model, "best_estimator_") else ""
    alone = f"alone or in a Pipeline behind {', '.join(SCALERS)}"
    raise TypeError(f"{where}: found {found}, expected {EXPECTED}, {alone}{best}. {IN_ONNX}")


def class_names_of(model: object, outputs: int) -> tuple[str, ...] | None:
    """The names that the model itself has for its outputs: transformers' `config.id2label` where they are none of its
    own making ("LABEL_0"), scikit-learn's `classes_`, or those in an ONNX file; None for other numbers of them."""
    labels = getattr(getattr(unwrapped(model), "config", None), "id2label", None)
    classes = getattr(model, "classes_", None)
    found: tuple[str, ...] = model.file.class_names if isinstance(model, OnnxNetwork) else ()
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
    remedy = FILES.get(Path(path).suffix.lower(), LOAD)
    raise TypeError(f"{where}: found {type(path).__name__} {str(path)!r:.200}, expected {EXPECTED}; {remedy}")


def _remedy(model: object) -> str:
    if _is_state(model):
        return "; load this state into a network first: network.load_state_dict(state)"
    states = [key for key, value in model.items() if _is_state(value)] if isinstance(model, Mapping) else []
    if states:
        return f"; load its state into a network first: network.load_state_dict(checkpoint[{states[0]!r}])"
    if isinstance(model, type) and issubclass(model, nn.Module):
        return f"; give an instance: {model.__name__}(...)"
    return ""


def _is_state(model: object) -> bool:
    return isinstance(model, Mapping) and bool(model) and all(isinstance(value, Tensor) for value in model.values())


def _kind(model: object) -> str:
    return f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
