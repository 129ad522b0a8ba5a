"""The order in which a network calls its modules, and the work above each that a backward pass crosses."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .onnx_network import OnnxBody
from .weights import parameter_owners

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CHANNELS_FIRST = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm)
LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class Call:
    """One call of a module: its path, and the multiply-adds of its own matrices for one example.

    positions: at which each weight is used. inputs: numbers in the input. numbers: in the output of a module that calls
    no other; 0 of one that does, whose output is that of its last.
    """

    path: str
    multiply_adds: int
    has_matrix: bool
    positions: int = 1
    inputs: int = 0
    numbers: int = 0


@dataclass(frozen=True)
class CallOrder:
    """Calls in the order in which they begin. `first_call`: parameter name -> its earliest call.

    A parameter of a module that is never called as one (read by other code) counts as its nearest caller's.
    """

    calls: tuple[Call, ...]
    first_call: dict[str, int]

    @classmethod
    def of(cls, network: nn.Module, example: Tensor) -> "CallOrder":
        """One forward pass of `example` (1, *input_shape); multiply-adds are counted, never timed."""
        begun, outputs = _record(network, example)
        places = _callers(network, set(begun))
        calls = tuple(_call(network, path, places, *outputs[position]) for position, path in enumerate(begun))
        first = {name: min(begun.index(path) for path in paths) for name, paths in places.items()}
        return cls(calls, first)

    def backward_share(self, names: Iterable[str]) -> float:
        """Share of the network's multiply-adds that a backward pass down to these parameters crosses, in [0, 1].

        The gradient is wanted in the output of the lowest layer among them, so that only what is called after it is
        crossed: nothing for a last layer. Where modules run side by side this is an upper bound.
        """
        lowest = min(self.first_call[name] for name in names)
        total = sum(call.multiply_adds for call in self.calls)
        return sum(call.multiply_adds for call in self.calls[lowest + 1 :]) / total if total else 0.0

    def crossed(self, names: Iterable[str]) -> int:
        """Numbers in the outputs of the layers that a backward pass down to these parameters crosses."""
        lowest = min(self.first_call[name] for name in names)
        return sum(call.numbers for call in self.calls[lowest:])

    def positions(self, name: str) -> int:
        """At which the weights of a parameter are used."""
        return self.calls[self.first_call[name]].positions

    @property
    def multiply_adds(self) -> int:
        """Those of one forward pass of one example."""
        return sum(call.multiply_adds for call in self.calls)

    def groups(self) -> dict[str, int]:
        """Parameter name -> number of its group, ascending in call order.

        A group is a module with a matrix and what follows it up to the next one: its normalisation goes with it.
        """
        number, numbers, seen = 0, [], False
        for call in self.calls:
            number += int(call.has_matrix and seen)
            seen = seen or call.has_matrix
            numbers.append(number)
        return {name: numbers[first] for name, first in self.first_call.items()}


Shapes = tuple[torch.Size, torch.Size]  # of a call's input and output


def _record(network: nn.Module, example: Tensor) -> tuple[list[str], dict[int, Shapes]]:
    """Paths in the order in which calls begin, and the shapes of each call."""
    begun: list[str] = []
    running: list[int] = []
    shapes: dict[int, Shapes] = {}
    paths = {module: path for path, module in network.named_modules()}

    def begins(module: nn.Module, *_: object) -> None:
        running.append(len(begun))
        begun.append(paths[module])

    def ends(_: nn.Module, args: object, output: object) -> None:
        shapes[running.pop()] = _shape(args), _shape(output)

    handles = [m.register_forward_pre_hook(begins) for m in paths] + [m.register_forward_hook(ends) for m in paths]
    try:
        with torch.no_grad():
            network(example)
    finally:
        for handle in handles:
            handle.remove()
    return begun, shapes


def _shape(value: object) -> torch.Size:
    """The shape of the first tensor found; (1,) where there is none."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value.shape if isinstance(value, Tensor) else torch.Size((1,))


def _callers(network: nn.Module, called: set[str]) -> dict[str, set[str]]:
    """For each parameter, the called modules that hold it, or the nearest called module around its holder."""
    return {name: {_nearest(path, called) for path, _ in owners} for name, owners in parameter_owners(network).items()}


def _nearest(path: str, called: set[str]) -> str:
    while path not in called:
        path = path.rpartition(".")[0]  # the network itself, "", is always called
    return path


def _matrices(network: nn.Module, path: str, places: dict[str, set[str]]) -> list[Tensor]:
    parameters = dict(network.named_parameters())
    return [parameters[name] for name, paths in places.items() if path in paths and parameters[name].dim() >= 2]


def _call(network: nn.Module, path: str, places: dict[str, set[str]], inside: torch.Size, outside: torch.Size) -> Call:
    """Each matrix is used once at each position; a table that is looked up takes no multiply-adds."""
    module, matrices = network.get_submodule(path), _matrices(network, path, places)
    positions = _positions(module, inside, outside)
    work = 0 if isinstance(module, LOOK_UPS) else positions * sum(matrix.numel() for matrix in matrices)
    if isinstance(module, OnnxBody):
        work += module.multiply_adds(inside[1:])
    numbers = 0 if any(True for _ in module.children()) else outside[1:].numel()
    return Call(path, work, bool(matrices), positions, inside[1:].numel(), numbers)


def _positions(module: nn.Module, inside: torch.Size, outside: torch.Size) -> int:
    """Of the output, or of the input of a transposed convolution."""
    if isinstance(module, TRANSPOSED):
        return inside[2:].numel()
    if isinstance(module, CHANNELS_FIRST):
        return outside[2:].numel()
    return outside[1:-1].numel()
