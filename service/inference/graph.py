"""A bundle's graph: inputs -> mean, variance and feature scores, by onnxruntime, checked against the manifest."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bundle import MODEL, Bundle, BundleError, InputSpec, Manifest
from .onnx_runtime import InvalidArgument, onnxruntime
from .onnx_wire import ExternalDataError, WireError, refuse_external_data

Array = npt.NDArray[Any]
ONNX_TYPES = {"float32": "tensor(float)", "int64": "tensor(int64)"}
MAX_CHUNK_ROWS = 64  # more rows at once gain no speed
CHUNK_BYTES = 64 * 2**20  # of the derivatives and products inside the graph, of all rows at once


class NetworkError(ValueError):
    """The network refuses the inputs, such as a token beyond its vocabulary.

    problem, expected: what to say of them ("" for nothing more). place: of the value at fault among the inputs, its
    example first, the first of several; None where that is not known.
    """

    def __init__(self, problem: str, expected: str = "", place: tuple[int, ...] | None = None) -> None:
        self.problem, self.expected, self.place = problem, expected, place
        where = "" if place is None else f" at {''.join(f'[{number}]' for number in place)}"
        super().__init__(f"{problem}{where}" + (f", expected {expected}" if expected else ""))

    def after(self, rows: int) -> "NetworkError":
        """The same, where these inputs come after so many others."""
        place = None if self.place is None else (self.place[0] + rows, *self.place[1:])
        return NetworkError(self.problem, self.expected, place)


class NetworkFailed(RuntimeError):
    """The graph in `file` cannot be run, or its outputs have other shapes than declared: the bundle is at fault."""

    def __init__(self, file: Path, problem: str) -> None:
        self.file, self.problem = file, problem
        super().__init__(f"{file}: {problem}")


def share_memory() -> None:
    """Let all sessions of this process allocate their intermediate values from one arena.

    Without this, every session keeps its own arena, as large as its largest batch: twice the memory while one bundle
    replaces another, and a fragmented heap afterwards.
    """
    place = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(place, None)


@dataclass(frozen=True)
class GraphOutputs:
    """What the graph gives: mean and variance (B, K) float32, the feature scores (B,) float32, by name, and the part
    `added` (B,) of each variance that is that of added weights, None without any; noise_scale (B, K) float32: where the
    noise depends on the input, else None."""

    mean: Array
    variance: Array
    features: Mapping[str, Array] = field(default_factory=dict)
    added: Array | None = None
    noise_scale: Array | None = None

    @classmethod
    def concatenate(cls, parts: Sequence["GraphOutputs"]) -> "GraphOutputs":
        """The examples of all parts, in order."""
        features = {name: np.concatenate([part.features[name] for part in parts]) for name in parts[0].features}
        mean, variance = (np.concatenate(each) for each in zip(*((p.mean, p.variance) for p in parts), strict=True))
        added = [part.added for part in parts if part.added is not None]
        scale = [part.noise_scale for part in parts if part.noise_scale is not None]
        return cls(mean, variance, features, *(np.concatenate(each) if each else None for each in (added, scale)))


class Graph:
    """The network of one bundle, open. Threads may share it."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        """threads: those of onnxruntime (None: its default). Raises `BundleError` where the graph is not what the
        manifest says."""
        manifest, file = bundle.manifest, bundle.path / MODEL
        self._spec, self._features = manifest.input, manifest.feature_scores
        self._network = _open(bundle, threads, file)
        self.chunk_rows = max(1, min(MAX_CHUNK_ROWS, CHUNK_BYTES // (4 * manifest.graph.row_numbers)))
        self.threads = threads

    def outputs(self, inputs: Array) -> GraphOutputs:
        """Everything that a prediction is made of: inputs (B, *input_shape), `chunk_rows` examples at a time.

        Raises `NetworkError` and `NetworkFailed`.
        """
        if len(inputs) <= self.chunk_rows:
            return self._outputs(inputs)
        found = []
        for start in range(0, len(inputs), self.chunk_rows):
            try:
                found.append(self._outputs(inputs[start : start + self.chunk_rows]))
            except NetworkError as error:
                raise error.after(start) from error.__cause__
        return GraphOutputs.concatenate(found)

    def _outputs(self, inputs: Array) -> GraphOutputs:
        names = list(self._network.shapes)
        found = dict(zip(names, self._network.run(names, inputs), strict=True))
        columns = found.get("feature_scores")
        features = {} if columns is None else dict(zip(self._features, columns.T, strict=True))
        extra = found.get("added_variance"), found.get("noise_scale")
        return GraphOutputs(found["mean"], found["variance"], features, *extra)

    def takes_longer_than(self, seconds: float, rows: int = 1, attempts: int = 3) -> bool:
        """Whether the graph needs more than `seconds` for so many examples, at the best of a few attempts."""
        inputs = ordinary_inputs(self._spec, rows)
        for _ in range(attempts):
            start = time.perf_counter()
            try:
                self._outputs(inputs)
            except NetworkError:  # nobody knows
                return True
            if time.perf_counter() - start <= seconds:
                return False
        return True


@dataclass(frozen=True)
class _Network:
    """The open graph of `file`; `shapes` of each output, for one example."""

    file: Path
    session: onnxruntime.InferenceSession
    shapes: Mapping[str, tuple[int, ...]]

    def run(self, outputs: list[str], inputs: npt.NDArray[Any]) -> list[Array]:
        """The outputs of these names, inputs (B, *input_shape); raises `NetworkError` and `NetworkFailed`."""
        try:
            found: list[Array] = self.session.run(outputs, {"inputs": inputs})
        except InvalidArgument as error:
            raise _refused(str(error), inputs) from error
        except Exception as error:  # onnxruntime raises a family of unrelated exceptions
            raise NetworkFailed(self.file, f"onnxruntime cannot run it: {error!s:.300}") from error
        for name, output in zip(outputs, found, strict=True):
            if output.shape != (expected := (len(inputs), *self.shapes[name])):
                raise NetworkFailed(self.file, f"found the shape {output.shape} of {name!r}, expected {expected}")
        return found


# What onnxruntime says of an index that a table does not have, in Gather and ScatterElements, GatherND and ScatterND.
OUTSIDE = (
    re.compile(r"idx=(?P<found>-?\d+) must be within the inclusive range \[-\d+,(?P<last>\d+)\]"),
    re.compile(r"invalid ind(?:ex|ice) found, ind(?:ex|ice) = (?P<found>-?\d+)(?P<last>)"),
)


def _refused(told: str, inputs: npt.NDArray[Any]) -> NetworkError:
    """What to say of inputs that a graph refuses: the value that is no entry of a table, and its first place."""
    outside = next((match for pattern in OUTSIDE if (match := pattern.search(told))), None)
    if outside is None:
        return NetworkError("the network cannot process these inputs; are all values in its range?")
    found, last = int(outside["found"]), outside["last"]
    places = _places_of(found, inputs)
    if found < 0 and last and not len(places):  # moved by the graph, below what ONNX counts from the end
        found += int(last) + 1
        places = _places_of(found, inputs)
    expected = f"one from 0 to {last}" if last else "one that its table has"
    place = tuple(places[0].tolist()) if len(places) else None
    return NetworkError(f"the network looks up the value {found}", expected, place)


def _places_of(value: int, inputs: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where the value is among the inputs, or becomes it when its fraction is cut off."""
    exact = np.argwhere(inputs == value)
    return exact if len(exact) else np.argwhere(np.trunc(inputs) == value)


def _open(bundle: Bundle, threads: int | None, file: Path) -> _Network:
    """inputs -> mean, variance, and what added weights give."""
    spec, shapes = bundle.manifest.input, _shapes(bundle.manifest)
    _check_self_contained(bundle.model, file)
    session = _session(bundle.model, threads, file)
    _check_signature(session, spec, shapes, file)
    network = _Network(file, session, shapes)
    _check_run(network, spec, file)
    return network


def _check_self_contained(model: bytes, file: Path) -> None:
    try:
        refuse_external_data(model)
    except ExternalDataError as error:
        raise BundleError(file, str(error), "export the network with its weights in the model file") from error
    except WireError as error:
        raise BundleError(file, f"onnxruntime cannot open it: no ONNX model: {error}") from error


def _session(model: bytes, threads: int | None, file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, and logged once
    # External weights are refused before; with this path, one that was overlooked is not found.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    options.add_session_config_entry("session.load_model_format", "ONNX")  # not onnxruntime's own format
    # Use the shared arena (see `share_memory`), but not for weights, which are freed with their session.
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    options.inter_op_num_threads = 1
    # Spinning threads would take the CPUs from other models.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a family of unrelated exceptions for a bad graph
        raise BundleError(file, f"onnxruntime cannot open it: {error!s:.300}") from error


def _shapes(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """The shape of each result for one example."""
    k, names = manifest.outputs, manifest.feature_scores
    added: dict[str, tuple[int, ...]] = {} if manifest.added_weights is None else {"added_variance": ()}
    added |= {} if manifest.input_noise is None else {"noise_scale": (k,)}
    return {"mean": (k,), "variance": (k,), **added, **({"feature_scores": (len(names),)} if names else {})}


def _check_signature(
    session: onnxruntime.InferenceSession, spec: InputSpec, shapes: Mapping[str, tuple[int, ...]], file: Path
) -> None:
    expected = {"inputs": (ONNX_TYPES[spec.dtype], spec.shape)}
    expected |= {name: ("tensor(float)", shape) for name, shape in shapes.items()}
    nodes = (*session.get_inputs(), *session.get_outputs())
    for node in nodes:
        if node.shape and isinstance(node.shape[0], int):
            problem = f"found the fixed batch size {node.shape[0]} in {node.name!r}, expected a dynamic one"
            raise BundleError(file, problem)
    found = {node.name: (node.type, tuple(node.shape[1:])) for node in nodes}
    if found != expected:
        raise BundleError(file, f"found the graph signature {found}, expected {expected}")


def ordinary_inputs(spec: InputSpec, rows: int) -> npt.NDArray[Any]:
    """(rows, *input_shape) at the lower end of the range of the fit, where it is known, and else zeros: a network that
    looks values up may have none at 0."""
    found = np.zeros((rows, *spec.shape), spec.dtype)
    if spec.range is not None:
        found += np.reshape(spec.range.low, (-1,) + (1,) * (len(spec.shape) - 1)).astype(spec.dtype)
    return found


def _check_run(network: _Network, spec: InputSpec, file: Path) -> None:
    """Run the graph once on two examples, to check its real output shapes and to warm it up. It may look them up beyond
    a table: that is not the bundle's fault."""
    try:
        network.run(list(network.shapes), ordinary_inputs(spec, 2))
    except MemoryError as error:
        problem = f"found an input of shape {spec.shape}, of which two examples do not fit into the memory"
        raise BundleError(file, problem) from error
    except NetworkError as error:
        if not error.expected:  # of a table, which these inputs look beyond
            raise BundleError(file, f"onnxruntime cannot run it: {error.__cause__!s:.300}") from error
    except NetworkFailed as error:
        raise BundleError(file, f"two examples: {error.problem}") from error
