"""A second mean, cheaply: several last blocks on one trunk, each with its own subnetwork posterior.

    p(y | x) = (1 / M) sum_m softmax(f_m(z) / sqrt(1 + pi/8 diag(J_m Sigma_m J_m^T))),  z = trunk(x)

The trunk and the first block are those of the trained network; the other blocks are trained on its trunk, which stays
as it is (Deep Sub-Ensembles, Valdenegro-Toro, arXiv 1910.08168). Each block is a network of its own whose inputs are
the trunk's outputs, with a bundle of its own.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import BATCH, TIMED, Method, ours, ratio, sized, softmax
from benchmarks.fit.onnx_methods import open_session
from paper.images.baselines.point import state_bytes
from paper.images.networks import Frozen, cheap_modules, split
from paper.images.problems import Examples
from paper.images.setting import PAPERS
from probity.service.inference.predictor import Predictor

Array = npt.NDArray[Any]
MEMBERS = 5
OPTIONS: Mapping[str, Any] = {"selection": "random", "selection_options": {"live_only": True}, **PAPERS}  # and `within`


def new_block(model: nn.Module, new: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The frozen trunk with a new network's last block and head, and this block: train the first, keep the second."""
    trunk, _ = split(copy.deepcopy(model))
    _, block = split(new)
    return nn.Sequential(Frozen(trunk), block), block


def means_only(model: nn.Module, blocks: list[nn.Module]) -> Method:
    """The mean of the softmax outputs of the blocks."""
    trunk, own = split(model)

    def probabilities(x: Tensor) -> Array:
        features = _features(trunk, x)
        return np.asarray(np.mean([softmax(block, features) for block in (own, *blocks)], axis=0))

    return Method(probabilities, 1.0)


def with_posteriors(
    model: nn.Module,
    blocks: list[nn.Module],
    data: tuple[Examples, Examples],
    folder: Path,
    size: int,
    seed: int,
) -> Method:
    """The mean of the blocks' bundles; its price is measured in onnxruntime, trunk and all.

    data: training and held-out examples; seed: of the first block's weights, the next ones take the numbers after it.
    """
    trunk, own = split(model)
    train, held_out = ((_features(trunk, x), y) for x, y in data)
    folders = [folder / f"block-{number}" for number in range(1 + len(blocks))]
    methods = []
    for number, (block, place) in enumerate(zip((own, *blocks), folders, strict=True)):
        options = {**OPTIONS, "within": cheap_modules(block), "seed": seed + number}
        methods.append(ours(block, train, held_out, sized(block, options, size), place))

    def probabilities(x: Tensor) -> Array:
        features = _features(trunk, x)
        return np.asarray(np.mean([method.probabilities(features) for method in methods], axis=0))

    facts = {name: sum(float(method.facts[name]) for method in methods) for name in ("fit_seconds", "bytes")}
    facts["bytes"] += state_bytes(trunk)
    price = _price(model, trunk, folders, data[1][0][:TIMED], folder)
    return Method(probabilities, price, facts | {"size": size})


def _features(trunk: nn.Module, x: Tensor) -> Tensor:
    device = next(trunk.parameters()).device
    with torch.no_grad():
        return torch.cat([trunk(part.to(device)).cpu() for part in torch.split(x, BATCH)])


def _price(model: nn.Module, trunk: nn.Module, folders: list[Path], x: Tensor, folder: Path) -> float:
    """Time of the trunk and all blocks' graphs over that of the plain network, one thread each."""
    whole, start = (_session(part, x, folder / f"{name}.onnx") for part, name in ((model, "plain"), (trunk, "trunk")))
    predictors = [Predictor.load(place, threads=1) for place in folders]

    def everything() -> None:
        features = start(x.numpy())
        for predictor in predictors:
            predictor.graph.outputs(features)

    return ratio(everything, lambda: whole(x.numpy()))


def _session(model: nn.Module, x: Tensor, path: Path) -> Callable[[Array], Array]:
    """The network in onnxruntime on one thread."""
    torch.onnx.export(
        copy.deepcopy(model).cpu(),
        (x,),
        path,
        dynamo=True,
        input_names=["x"],
        dynamic_shapes=({0: "batch"},),
        verbose=False,
    )
    session = open_session(path, threads=1)

    def run(inputs: Array) -> Array:
        (values,) = session.run(None, {"x": inputs})
        return np.asarray(values)

    return run
