"""The plain network of a bundle, without its variances: what every price is a multiple of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.utils

from demur.service.bundle import MODEL
from demur.service.inference.onnx_runtime import onnxruntime

Array = npt.NDArray[Any]


def open_session(graph: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session for a file or its content, with the options that `demur.service.inference.predictor` gives its
    own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def plain_network(bundle: Path | str, threads: int) -> Callable[[Array], Array]:
    """inputs (B, ...) -> mean (B, K): the part of the graph that the outputs need."""
    whole = onnx.load(Path(bundle) / MODEL)
    part = onnx.utils.Extractor(whole).extract_model(["inputs"], ["mean"])
    session = open_session(part.SerializeToString(), threads)

    def mean(inputs: Array) -> Array:
        return np.asarray(session.run(["mean"], {"inputs": inputs})[0])

    return mean
