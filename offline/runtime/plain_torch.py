"""Torch as it begins, whatever the caller has set, on no more processors than this process may use."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from demur.service.environment.cpu import available_cpus


@contextmanager
def plain_torch() -> Iterator[None]:
    """Gradients and float32; no inference mode, autocast or anomaly detection. Threads as the caller has set them, but
    no more than a container's quota, of which torch knows nothing.

    Afterwards all of it is as it was, and Python's random state, too: the import of a library may draw a number. Raises
    `ValueError` for a default device other than the CPU.
    """
    if (device := torch.get_default_device()).type != "cpu":
        found = f"torch.get_default_device(): found {str(device)!r}, expected 'cpu'"
        raise ValueError(f"{found}: torch.set_default_device(None), or call this outside of `with torch.device(...)`")
    dtype, drawn, threads = torch.get_default_dtype(), random.getstate(), torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(min(threads, available_cpus()))
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
        torch.set_num_threads(threads)
        random.setstate(drawn)
