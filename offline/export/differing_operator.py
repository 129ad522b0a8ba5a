"""Which operator of a network gives other numbers in ONNX: each is exported alone, and given what reaches it."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from demur.service.inference.onnx_runtime import onnxruntime

from ..runtime.arrays import Array, to_numpy
from ..runtime.quiet import quiet_exporter
from .split_graph import traced

MOST = 200  # operators that are tried
NEAR = 1e-3  # of an operator's largest result


def differing_operator(network: nn.Module, rows: Tensor) -> str | None:
    """The first one, such as "aten.atan2"; None where none differs alone, or none can be tried: it is for a message.

    rows (B, *input_shape).
    """
    try:
        with quiet_exporter(), torch.no_grad():
            search = _Search(traced(lambda x: (network(x),), rows, symbolic=False))
            search.run(rows)
    except Exception:  # whatever tracing raises
        return None
    return search.found


class _Search(fx.Interpreter):
    """Runs a graph, and compares each operator with what onnxruntime makes of it, until one differs."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.found: str | None = None
        self._sessions: dict[str, onnxruntime.InferenceSession | None] = {}

    def run_node(self, n: fx.Node) -> Any:
        """As torch runs it."""
        result = super().run_node(n)
        is_computed = n.op == "call_function" and "empty" not in str(n.target)  # that memory holds anything
        if self.found is None and is_computed and isinstance(result, Tensor):
            answer = self._answer(n, *self.fetch_args_kwargs_from_env(n))
            if answer is not None and not _near(answer, to_numpy(result)):
                self.found = str(n.target).removesuffix(".default")
        return result

    def _answer(self, n: fx.Node, args: Any, kwargs: Any) -> Array | None:
        """onnxruntime's for these arguments; None where the operator cannot be tried alone."""
        leaves, structure = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        settings = [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        key = f"{n.target} {structure} {settings}"
        try:
            if key not in self._sessions and len(self._sessions) < MOST:
                self._sessions[key] = None
                self._sessions[key] = _session(_Alone(cast("Callable[..., Any]", n.target), leaves, structure), tensors)
            if (session := self._sessions.get(key)) is None:
                return None
            names = [each.name for each in session.get_inputs()]
            answer: Array = session.run(None, dict(zip(names, map(to_numpy, tensors), strict=True)))[0]
        except Exception:  # tracing, conversion and kinds of numbers that NumPy lacks raise a wide family of errors
            return None
        return answer


class _Alone(nn.Module):
    """One operator as a function of its tensors."""

    def __init__(self, target: Callable[..., Any], leaves: list[Any], structure: Any) -> None:
        super().__init__()
        self._call = target, [None if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def forward(self, *tensors: Tensor) -> Any:
        target, leaves, structure = self._call
        given = dict(zip(self._places, tensors, strict=True))
        args, kwargs = tree_unflatten([given.get(i, leaf) for i, leaf in enumerate(leaves)], structure)
        return target(*args, **kwargs)


def _session(alone: _Alone, tensors: list[Tensor]) -> onnxruntime.InferenceSession:
    exported = torch.onnx.export(
        torch.export.export(alone, tuple(tensors)), (), dynamo=True, verbose=False, optimize=False
    )
    assert exported is not None
    return onnxruntime.InferenceSession(exported.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def _near(answer: Array, expected: Array) -> bool:
    """Whether all entries are the same number, or none in both, or near; complex numbers, two in ONNX, pass."""
    if answer.shape != expected.shape:
        return True
    one, other = answer.astype(np.float64), expected.astype(np.float64)
    least = NEAR * float(np.abs(other[np.isfinite(other)]).max(initial=0))
    return np.allclose(one, other, rtol=NEAR, atol=least, equal_nan=True)
