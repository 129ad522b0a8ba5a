"""The methods of the experiment on quality and price: each gives probabilities, at a price in forward passes."""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.core.plain import plain_network
from benchmarks.experiments.frontier.data import Problem
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor

Array = npt.NDArray[Any]
Examples = tuple[Tensor, Tensor]
MEMBERS, SAMPLES, DROPOUT = 5, 16, 0.1
BATCH, TIMED, ROUNDS = 100, 16, 15
DEAR, FEW = 20.0, 500  # passes; the test images of a method that takes so many


@dataclass(frozen=True)
class Method:
    """Probabilities (n, K) of inputs (n, *shape), and what a prediction costs, in forward passes of one network.

    facts: what else is kept of it; "examples": only so many of each set are worth the time. predictor: of a bundle.
    """

    probabilities: Callable[[Tensor], Array]
    price: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    predictor: Predictor | None = None


def sized(model: nn.Module, options: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The options, with so many weights, or all where there are fewer."""
    within = [model.get_submodule(path) for path in options.get("within", ("",))]
    most = sum(p.numel() for module in within for p in module.parameters())
    return {"subnetwork_size": min(size, most), **options}


def ours(model: nn.Module, train: Examples, held_out: Examples, options: Mapping[str, Any], folder: Path) -> Method:
    """A bundle, fitted to the training images and served; its price is that of a batch of 16."""
    loader = DataLoader(TensorDataset(*train), batch_size=256)
    config = FitConfig(**options)
    start = time.perf_counter()
    fit_bundle(model, loader, folder, calibration_loader=[held_out], config=config)
    seconds = time.perf_counter() - start
    predictor = Predictor.load(folder, threads=torch.get_num_threads())
    alone, mean = Predictor.load(folder, threads=1).graph, plain_network(folder, 1)
    one, manifest = held_out[0][:TIMED].numpy(), predictor.manifest

    def probabilities(x: Tensor) -> Array:
        parts = [predictor.predict(part.numpy()).probabilities for part in in_batches(x)]
        return np.concatenate([part for part in parts if part is not None])

    price = ratio(lambda: alone.outputs(one), lambda: mean(one))
    facts = {
        "fit_seconds": seconds,
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".onnx", ".safetensors")),
        "explanation": manifest.selection.explanation,
        "temperature": manifest.temperature,
    }
    return Method(probabilities, price, facts, predictor)


def in_batches(x: Tensor) -> tuple[Tensor, ...]:
    """Images as they are predicted together."""
    return torch.split(x, BATCH)


def dropout(model: nn.Module) -> Method:
    """The mean over `SAMPLES` passes with dropout left on, everything else in eval mode."""

    def probabilities(x: Tensor) -> Array:
        torch.manual_seed(0)
        for module in model.modules():
            module.train(isinstance(module, nn.Dropout))
        result: Array = np.mean([softmax(model, x) for _ in range(SAMPLES)], axis=0)
        model.eval()
        return result

    return Method(probabilities, float(SAMPLES))


def ensemble(models: list[nn.Module]) -> Method:
    """The mean over networks trained from other seeds."""
    return Method(lambda x: np.asarray(np.mean([softmax(model, x) for model in models], axis=0)), float(len(models)))


def last_layer_laplace(model: nn.Module, problem: Problem, examples: int) -> Method:
    """laplace-torch as its documentation starts: last layer, Kronecker factors, marginal likelihood, probit."""
    from laplace import Laplace  # its imports warn, and the registry would load it

    own = copy.deepcopy(model)  # it puts hooks and attributes on what it is given
    laplace: Any = Laplace(own, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    data = TensorDataset(*(part[:examples] for part in problem.train))
    laplace.fit(DataLoader(data, batch_size=256))
    laplace.optimize_prior_precision(method="marglik")

    def probabilities(x: Tensor) -> Array:
        parts = [laplace(part, pred_type="glm", link_approx="probit") for part in in_batches(x)]
        return np.asarray(torch.cat(parts).detach().numpy())

    one = problem.tests["usual"][:TIMED]
    price = ratio(lambda: probabilities(one), lambda: softmax(model, one))
    return Method(probabilities, price, {"examples": FEW} if price > DEAR else {})


def softmax(model: nn.Module, x: Tensor) -> Array:
    """Probabilities (n, K) of the network alone."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        parts = [torch.softmax(model(part.to(device)), dim=1).cpu() for part in torch.split(x, BATCH)]
    return np.asarray(torch.cat(parts).numpy())


def ratio(work: Callable[[], object], floor: Callable[[], object]) -> float:
    """Processor time of `work` over that of `floor` on one thread, each the least of several rounds in turns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the time of other threads would not be counted
    try:
        rounds = [(_seconds(work), _seconds(floor)) for _ in range(ROUNDS)]
    finally:
        torch.set_num_threads(threads)
    return min(own for own, _ in rounds) / min(plain for _, plain in rounds)


def _seconds(function: Callable[[], object]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start
