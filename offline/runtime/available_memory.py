"""The memory of a job: by default a share of what is free, and what of it a chunk of examples may take."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from .peak_memory import FLOAT64

# Modules imported on first use, thread pools, compiled kernels, BLAS buffers; on a GPU, the libraries' work spaces.
OVERHEAD_BYTES = {"cpu": 160 * 2**20, "cuda": 256 * 2**20}
# Larger chunks are no faster on a CPU, but slower: pages fresh from the kernel cost more than calls saved.
CHUNK_BYTES = {"cpu": 128 * 2**20, "cuda": 2**62}

# S x S matrices at once: the curvature, its eigenvectors, and two that LAPACK works in; later the curvature, its
# factor, the factor as bytes, and as the predictor reads it.
MATRICES = 5
DERIVATIVE_BYTES = 64  # of an output in a weight: in both precisions, their products and squares, and margin
AVAILABLE_SHARE = 0.6
ROOT = Path("/")


def default_budget(device: torch.device) -> int:
    """60 % of the memory that is free now, in bytes: the GPU's, or the machine's within its control groups' limits.

    The rest is for what nobody counts: the caller's data, other programs, the allocator's fragments.
    """
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    return int(AVAILABLE_SHARE * free)


def available_memory(root: Path = ROOT) -> int:
    """Bytes that this process may still take: the machine's, or the smallest room left in a control group."""
    return max(0, min(_machine(root), *_group_rooms(root), 2**63))


def _machine(root: Path) -> int:
    """MemAvailable; without /proc, half of the physical memory."""
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _group_rooms(root: Path) -> Iterator[int]:
    """limit - used for this process's control group and each above it, versions 2 and 1.

    In a container the path named in /proc may not exist below /sys: the container's own group is then the top.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _rooms_above(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _rooms_above(root / "sys/fs/cgroup/memory", path, *names)


def _rooms_above(top: Path, path: str, limit: str, used: str, cache: str) -> Iterator[int]:
    group = top / path.strip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            return
        text = _read(folder / limit).strip()
        if text.isdigit():
            taken = int(_read(folder / used).strip() or 0) - _reclaimable(folder, cache)
            yield int(text) - max(0, taken)


def _reclaimable(folder: Path, cache: str) -> int:
    """File pages that the kernel drops when memory is wanted: they count as used, and are not."""
    for line in _read(folder / "memory.stat").splitlines():
        if line.startswith(f"{cache} "):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def chunk_bytes(network: nn.Module, device: torch.device, budget_bytes: int, size: int = 0) -> int:
    """Memory for a chunk of examples beside the model and a matrix of `size` weights, or all that is left where that is
    less."""
    room = budget_bytes - OVERHEAD_BYTES[device.type] - model_bytes(network) - FLOAT64 * size**2
    return max(1, min(room, CHUNK_BYTES[device.type]))


def check_fits(network: nn.Module, device: torch.device, budget_bytes: int, size: int, outputs: int) -> int:
    """What a fit of `size` weights takes at least, beside its data, in bytes; `ValueError` where that is more than the
    budget.

    Five S x S matrices, or two, the derivatives of one example, K x S, and the K x K gradients that they begin with.
    """
    matrix, derivatives = FLOAT64 * size**2, DERIVATIVE_BYTES * outputs * size + 4 * outputs**2
    needed = OVERHEAD_BYTES[device.type] + model_bytes(network) + max(MATRICES * matrix, 2 * matrix + derivatives)
    if needed > budget_bytes:
        raise ValueError(
            f"memory_budget: found {budget_bytes} bytes ({readable(budget_bytes)}), expected at least {needed} "
            f"({readable(needed)}) for {size:,} weights and {outputs:,} outputs; give a larger memory_budget, fewer "
            "weights (subnetwork_size), or a machine with more memory"
        )
    return needed


def readable(count: int) -> str:
    """A readable number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def model_bytes(network: nn.Module) -> int:
    """Bytes of weights and buffers, tied ones once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in (*network.parameters(), *network.buffers()))
