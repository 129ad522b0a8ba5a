"""Torch as it begins, whatever the caller has set."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def plain_torch() -> Iterator[None]:
    """Gradients and float32; no inference mode, autocast or anomaly detection.

    Afterwards all of it is as it was, and Python's random state, too: the import of a library may draw a number. Raises
    `ValueError` for a default device other than the CPU.
    """
    if (device := torch.get_default_device()).type != "cpu":
        found = f"torch.get_default_device(): found {str(device)!r}, expected 'cpu'"
        raise ValueError(f"{found}: torch.set_default_device(None), or call this outside of `with torch.device(...)`")
    dtype, drawn = torch.get_default_dtype(), random.getstate()
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            torch.autograd.set_detect_anomaly(False),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(drawn)
