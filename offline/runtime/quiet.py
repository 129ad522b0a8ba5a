"""Silence for what the exporter and its helpers say of their own work."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

TALKATIVE = (
    "torch.onnx",
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "onnxscript.optimizer",
)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """They report every optional operator that they skip, every constant that cannot be folded, and every failure
    before it is raised; none of that concerns the user."""
    levels = {name: logging.getLogger(name).level for name in TALKATIVE}
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
