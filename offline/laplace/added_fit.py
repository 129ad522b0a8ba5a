"""Fit the added weights in one pass over the training data."""

import numpy as np
import torch

from ..features.activations import read_activations
from ..features.added_weights import AddedWeights
from ..job import Job
from ..runtime.arrays import Array, in_chunks
from ..runtime.generators import seed_generators
from ..runtime.peak_memory import FLOAT64, rows_within

MOST_EXAMPLES = 20_000  # whose activations are read: more change nothing that can be measured
MEMORY_SHARE = 8  # they take at most one part in so many of the job's memory
COPIES = 4  # of the activations, in float64, while the features are fitted


def fit_added_weights(job: Job, rows: int) -> AddedWeights | None:
    """One pass over a sample of the training data, at most `rows` examples at once; every process calls it.

    None for a job without layers to read (`Job.layers`).
    """
    if job.layers is None:
        return None
    widths, shared = layer_widths(job), job.distributed
    kept = _sample(job, _most_examples(job, sum(widths.values())))
    places = np.cumsum(kept) - 1
    found = {path: torch.zeros(int(kept.sum()), width) for path, width in widths.items()}
    seed_generators(job.config.seed, job.train.batches)
    end = 0
    for number, (batch, _) in enumerate(job.pass_over_training("Added weights")):
        start, end = end, end + len(batch)
        some = np.flatnonzero(kept[start:end])
        if number % shared.world_size != shared.rank or not len(some):
            continue
        chosen = batch[torch.as_tensor(some, device=batch.device)]
        for inputs, at in in_chunks(chosen, torch.as_tensor(places[start:end][some]), rows):
            with torch.no_grad():
                read = read_activations(job.network, job.layers.paths, inputs)
            for path, activations in zip(job.layers.paths, read, strict=True):
                found[path][at] = activations.float().cpu()
    for activations in found.values():
        shared.all_reduce(activations)  # each process filled rows of its own
    return AddedWeights.fit(job.layers, found, job.config.seed)


def _sample(job: Job, most: int) -> Array:
    """(N,) bool: which examples of a pass are read, drawn by the seed."""
    known = job.train.examples
    total = known if known is not None else sum(len(inputs) for inputs, _ in job.pass_over_training())
    kept = np.zeros(total, bool)
    kept[np.random.default_rng(job.config.seed).permutation(total)[:most]] = True
    return kept


def layer_widths(job: Job) -> dict[str, int]:
    """How many activations each layer has."""
    if job.layers is None:
        return {}
    with torch.no_grad():
        read = read_activations(job.network, job.layers.paths, job.example)
    return {path: activations.shape[1] for path, activations in zip(job.layers.paths, read, strict=True)}


def _most_examples(job: Job, width: int) -> int:
    return min(MOST_EXAMPLES, rows_within(job.memory_bytes // MEMORY_SHARE, COPIES * FLOAT64 * max(1, width)))
