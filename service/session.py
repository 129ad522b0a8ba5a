"""A bundle's graph -> onnxruntime sessions that were seen to do what its manifest says."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from service.bundle import MODEL, Bundle, BundleError, Manifest
from service.onnx_part import WireError, part_of

Array = npt.NDArray[np.float32]
ONNX_TYPES = {"float32": "tensor(float)", "int64": "tensor(int64)"}


class NetworkError(ValueError):
    """The network itself refuses the inputs, such as a token beyond its vocabulary."""


def share_memory() -> None:
    """From now on, all sessions of this process take the memory for their intermediate values from one arena.

    Each would keep an arena of its own else, as large as its largest batches ever needed: twice that while one bundle
    takes another's place, and heaps full of holes once it has.
    """
    place = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(place, None)


def run(session: onnxruntime.InferenceSession, outputs: list[str], inputs: npt.NDArray[Any]) -> list[Array]:
    """The outputs of these names, inputs (B, *input_shape); raises `NetworkError`."""
    try:
        found: list[Array] = session.run(outputs, {"inputs": inputs})
    except InvalidArgument as error:
        raise NetworkError("the network cannot process these inputs; are all values in its range?") from error
    return found


def open_session(bundle: Bundle, threads: int | None) -> onnxruntime.InferenceSession:
    """inputs -> mean, jacobian; `threads`: onnxruntime's (None: its default). Raises `BundleError` where the graph is
    not what the manifest says."""
    file = bundle.path / MODEL
    session = _session(bundle.model, threads, file)
    _check_signature(session, bundle.manifest, file)
    _check_run(session, bundle.manifest, file)
    return session


def open_plain(bundle: Bundle, threads: int | None) -> onnxruntime.InferenceSession:
    """The graph that was checked already, without what only the Jacobian needs."""
    file = bundle.path / MODEL
    try:
        return _session(part_of(bundle.model, ["mean"]), threads, file)
    except WireError as error:
        raise BundleError(file, f"cannot be taken apart: {error}") from error


def _session(model: bytes, threads: int | None, file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised, and said once
    # Weights outside the model file would be read unchecked, relative to wherever the service was started.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    # Where there is a shared arena (see `share_memory`); weights stay outside, they leave with their session.
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    options.inter_op_num_threads = 1
    # Spinning threads would take the cores from the matrix product that follows, and from neighbours.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a family of unrelated exceptions for a bad graph
        raise BundleError(file, f"onnxruntime cannot open it: {error!s:.300}") from error


def _check_signature(session: onnxruntime.InferenceSession, manifest: Manifest, file: Path) -> None:
    k, s = manifest.outputs, manifest.subnetwork_size
    expected = {
        "inputs": (ONNX_TYPES[manifest.input.dtype], manifest.input.shape),
        "mean": ("tensor(float)", (k,)),
        "jacobian": ("tensor(float)", (k, s)),
    }
    nodes = (*session.get_inputs(), *session.get_outputs())
    for node in nodes:
        if node.shape and isinstance(node.shape[0], int):
            problem = f"found the fixed batch size {node.shape[0]} in {node.name!r}, expected a dynamic one"
            raise BundleError(file, problem)
    found = {node.name: (node.type, tuple(node.shape[1:])) for node in nodes}
    if found != expected:
        raise BundleError(file, f"found the graph signature {found}, expected {expected}")


def _check_run(session: onnxruntime.InferenceSession, manifest: Manifest, file: Path) -> None:
    """Run the graph once on two examples: what it declares is what it does, and later requests find it warm."""
    inputs = np.zeros((2, *manifest.input.shape), manifest.input.dtype)
    try:
        found = [output.shape for output in session.run(["mean", "jacobian"], {"inputs": inputs})]
    except Exception as error:  # onnxruntime raises a family of unrelated exceptions
        raise BundleError(file, f"onnxruntime cannot run it: {error!s:.300}") from error
    expected = [(2, manifest.outputs), (2, manifest.outputs, manifest.subnetwork_size)]
    if found != expected:
        raise BundleError(file, f"found outputs of shapes {found} for two examples, expected {expected}")
