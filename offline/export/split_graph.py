"""One traced graph, split where the cotangents enter: forward work once an example, backward work once an output.

Tracing forward and backward together gives operators that depend on the inputs alone, and operators that depend on the
cotangents. The first run on B rows. The second run on B * K rows, one output each, with what they need of the first
(activations, masks) repeated K times. The graph's size does not depend on K, the forward pass is not repeated, and
what lies below the lowest probe is not even stored.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch._export.utils import _compiling_state_context
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from .decompositions import decompositions
from .rewrites import Rewrites

aten = torch.ops.aten
Size = torch.SymInt | torch.SymFloat | int | float


class SplitError(RuntimeError):
    """The traced graph cannot be run on repeated rows."""


@dataclass(frozen=True)
class SplitGraph:
    """forward: x (B, ...) -> (*kept, *saved); backward: (cotangents (R, K), *saved for R rows) -> gradients.

    `kept`: how many of the forward's results are the caller's; `layouts`: for each saved tensor the axis that counts
    the batch and how many entries it holds an example (None: no axis does).
    """

    forward: nn.Module
    backward: nn.Module
    kept: int
    layouts: tuple[tuple[int, int] | None, ...]


def traced(function: Callable[..., Any], *examples: Tensor, symbolic: bool) -> fx.GraphModule:
    """The operators of `function`, in-place ones made functional, independent of memory layout, ours decomposed."""
    mode: Literal["symbolic", "fake"] = "symbolic" if symbolic else "fake"
    inputs = _any_number(examples) if symbolic else examples
    with Rewrites(), _compiling_state_context():  # models that ask whether they are traced must hear it here too
        graph = make_fx(function, decompositions(), tracing_mode=mode, _allow_non_fake_inputs=True)(*inputs)
    for node in graph.graph.nodes:
        if node.target in (aten.view.default, aten._unsafe_view.default):  # noqa: SLF001  traced by torch
            node.target = aten.reshape.default  # a rewritten operator may return other strides
            node.args = (node.args[0], _inferred(node.args[1]))
    graph.recompile()
    return graph


def _inferred(shape: Any) -> Any:
    """The same shape, a constant where all sizes but one are: reshaping finds out the other."""
    known = [size for size in shape if isinstance(size, int) and size > 0]
    return [size if size in known else -1 for size in shape] if len(known) == len(shape) - 1 else shape


def _any_number(examples: tuple[Tensor, ...]) -> list[Tensor]:
    """Fake tensors of the same shapes, their first axis symbolic: one symbol for one length.

    With every axis symbolic, tracing spends minutes on the algebra of sizes that never change.
    """
    fake = FakeTensorMode(shape_env=ShapeEnv(), allow_fallback_kernels=False, allow_non_fake_inputs=True)
    first_only: list[Any] = [
        StatelessSymbolicContext([DimDynamic.DUCK, *[DimDynamic.STATIC] * (x.dim() - 1)]) if x.dim() else None
        for x in examples
    ]
    return [fake.from_tensor(x, symbolic_context=axes) for x, axes in zip(examples, first_only, strict=True)]


def split(graph: fx.GraphModule, kept: int) -> SplitGraph:
    """Split a graph with inputs (x, cotangents) whose first `kept` outputs do not depend on the cotangents.

    Raises `SplitError` where a saved tensor's shape does not tell the examples apart.
    """
    x, cotangents = (node for node in graph.graph.nodes if node.op == "placeholder")
    results: list[fx.Node] = list(next(node for node in graph.graph.nodes if node.op == "output").args[0])
    batch = x.meta["val"].shape[0]
    late = _dependents(graph.graph, cotangents)
    if any(node in late for node in results[:kept]):
        raise SplitError("an output of the forward pass depends on the cotangents")
    wanted = results[kept:]
    sized = _sized(graph.graph)
    saved = _saved(graph.graph, late | sized, wanted)
    layouts = tuple(_layout(node.meta["val"], batch) for node in saved)
    forward = _forward_part(graph, late, [*results[:kept], *saved])
    backward = _backward_part(graph, late | sized, cotangents, saved, wanted, batch)
    return SplitGraph(forward, backward, kept, layouts)


def repeated(x: Tensor, layout: tuple[int, int] | None, times: int) -> Tensor:
    """Each example's part of `x` repeated `times` times in a row."""
    if layout is None:
        return x
    axis, each = layout
    shape = list(x.shape)
    x = x.reshape(*shape[:axis], shape[axis] // each, 1, each, *shape[axis + 1 :])
    x = x.expand(*shape[:axis], -1, times, each, *shape[axis + 1 :])
    return x.reshape(*shape[:axis], shape[axis] * times, *shape[axis + 1 :])


def _dependents(graph: fx.Graph, source: fx.Node) -> set[fx.Node]:
    dependents = {source}
    for node in graph.nodes:
        if node.op != "output" and any(before in dependents for before in node.all_input_nodes):
            dependents.add(node)
    return dependents


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), Size)


def _sized(graph: fx.Graph) -> set[fx.Node]:
    """Tensors made from sizes and constants alone: made anew for the rows of the backward part.

    Numbers of the examples, as in logits[torch.arange(batch), last], must count those rows.
    """
    sized: set[fx.Node] = set()
    for node in graph.nodes:
        known = all(before in sized or _is_size(before) or before.op == "get_attr" for before in node.all_input_nodes)
        if node.op == "call_function" and known and not _is_size(node):
            sized.add(node)
    return sized


def _saved(graph: fx.Graph, copied: set[fx.Node], wanted: list[fx.Node]) -> list[fx.Node]:
    """Tensors made from the inputs that the `copied` part reads, in order; constants of the model are none."""
    read = {before for node in copied for before in node.all_input_nodes} | set(wanted)
    early = [node for node in graph.nodes if node in read and node not in copied]
    return [node for node in early if node.op != "get_attr" and not _is_size(node)]


def _layout(value: Tensor, batch: torch.SymInt) -> tuple[int, int] | None:
    """Which axis counts examples: one of size B, or a multiple of it with each example's entries side by side."""
    sizes = [(axis, _multiple(size, batch)) for axis, size in enumerate(value.shape)]
    layouts = [(axis, each) for axis, each in sizes if each is not None]
    if len(layouts) > 1:
        raise SplitError(f"a saved tensor of shape {tuple(value.shape)} counts the batch twice")
    return layouts[0] if layouts else None


def _multiple(size: torch.SymInt | int, batch: torch.SymInt) -> int | None:
    """c in size = c * batch; None where the size does not depend on the batch. All other sizes are fixed."""
    if isinstance(size, int):
        return None
    symbol, values = batch.node.expr, batch.node.shape_env.backed_var_to_val
    expression = size.node.expr.xreplace({s: values[s] for s in size.node.expr.free_symbols - {symbol}})
    if symbol not in expression.free_symbols:
        return None
    ratio = expression / symbol
    if not ratio.is_Integer:
        raise SplitError(f"found a size of {expression} with {symbol} examples, expected a multiple")
    return int(ratio)


def _forward_part(graph: fx.GraphModule, late: set[fx.Node], outputs: list[fx.Node]) -> nn.Module:
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op != "output" and node not in late:
            copies[node] = new.node_copy(node, lambda n: copies[n])
    new.output(tuple(copies[node] for node in outputs))
    _drop_probes(new)
    return _module(graph, new)


def _backward_part(
    graph: fx.GraphModule,
    copied: set[fx.Node],
    cotangents: fx.Node,
    saved: list[fx.Node],
    wanted: list[fx.Node],
    batch: torch.SymInt,
) -> nn.Module:
    """The operators to copy; sizes that follow the batch are computed anew from the cotangents' rows."""
    new = fx.Graph()
    copies: dict[fx.Node, Any] = {}
    copies[cotangents] = new.node_copy(cotangents)
    for node in saved:
        copies[node] = new.placeholder(node.name)
    rows = new.call_function(aten.sym_size.int, (copies[cotangents], 0))
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output") or node in copies:
            continue
        if node in copied:
            copies[node] = new.node_copy(node, lambda n: copies[n])
        elif node.op == "get_attr":
            copies[node] = new.node_copy(node)
        elif _is_size(node) and _is_fixed(node.meta["val"], batch):
            copies[node] = _size(new, node.meta["val"], rows, batch)
        elif _is_size(node):
            copies[node] = new.node_copy(node, lambda n: copies[n])
    new.output(tuple(copies[node] for node in wanted))
    return _module(graph, new)


def _size(graph: fx.Graph, value: Size, rows: fx.Node, batch: torch.SymInt) -> fx.Node | int | float:
    if isinstance(value, torch.SymFloat | float):
        return float(value)
    each = _multiple(value, batch)
    if each is None:
        return int(value)
    return rows if each == 1 else graph.call_function(operator.mul, (rows, each))


def _is_fixed(value: Size, batch: torch.SymInt) -> bool:
    """Whether a number made of sizes is the same for any number of examples."""
    return not isinstance(value, torch.SymFloat) or batch.node.expr not in value.node.expr.free_symbols


def _drop_probes(graph: fx.Graph) -> None:
    """output + 0 is the output: the probes have done their work once the graph is traced."""
    for node in graph.nodes:
        if node.target is aten.add.Tensor and isinstance(node.args[1], fx.Node):
            zeros: Any = node.args[1]
            while zeros.target in (aten.detach.default, aten.alias.default):
                zeros = zeros.args[0]
            if zeros.target is aten.zeros_like.default:
                node.replace_all_uses_with(node.args[0])


def _module(owner: fx.GraphModule, graph: fx.Graph) -> nn.Module:
    graph.eliminate_dead_code()
    graph.lint()
    return fx.GraphModule(owner, graph)
