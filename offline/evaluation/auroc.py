"""How well a score tells examples from shifted or foreign ones."""

import numpy as np

from ..runtime.arrays import Array


def auroc(usual: Array, shifted: Array) -> float:
    """The chance that a shifted example scores above a usual one, ties half; usual (n,), shifted (m,)."""
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([0, 1], [len(usual), len(shifted)])
    return float(roc_auc_score(labels, np.concatenate([usual, shifted])))
