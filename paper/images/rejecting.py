"""What is rejected at a false-reject rate of 5 %: ordinary and shifted images, those answered wrongly, foreign ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.experiments.frontier.methods import BATCH, Array, Method
from demur.offline.evaluation.diagnostics import auroc
from demur.service.inference.predictor import Predictor
from demur.service.maths.predictive import entropy
from paper.images.problems import Problem

FALSE_REJECT_RATE = 0.05


@dataclass(frozen=True)
class Judged:
    """Of images, (n,) each: the score, whether they are rejected, and the class that is answered."""

    score: Array
    rejected: Array
    answer: Array


Judge = Callable[[Tensor], Judged]


def of_bundle(folder: Path) -> Judge:
    """By the bundle's own score and threshold."""
    predictor = Predictor.load(folder, threads=torch.get_num_threads())

    def judge(x: Tensor) -> Judged:
        found = [predictor.predict(part.numpy()) for part in torch.split(x, BATCH)]
        columns = zip(*((one.score, one.rejected, one.mean.argmax(1)) for one in found), strict=True)
        return Judged(*(np.concatenate(column) for column in columns))

    return judge


def by_entropy(method: Method, held_out: Tensor) -> Judge:
    """By the predictive entropy, at the quantile of held-out images."""
    threshold = np.quantile(entropy(method.probabilities(held_out)), 1 - FALSE_REJECT_RATE)

    def judge(x: Tensor) -> Judged:
        p = method.probabilities(x)
        scores = entropy(p)
        return Judged(scores, scores > threshold, p.argmax(1))

    return judge


def rejection(judge: Judge, problem: Problem) -> dict[str, Any]:
    """Shares rejected by the strength of the shift, of all images and of those answered wrongly (None: there is none);
    of foreign images; and the score's AUROC for these."""
    classes = problem.classes.numpy()
    found = {strength: judge(x) for strength, x in problem.tests.items()}
    foreign = {name: judge(x) for name, x in problem.foreign.items()}
    wrong = {strength: one.rejected[one.answer != classes] for strength, one in found.items()}
    return {
        "all": {str(strength): float(one.rejected.mean()) for strength, one in found.items()},
        "wrong": {str(strength): float(one.mean()) if len(one) else None for strength, one in wrong.items()},
        "foreign": {name: float(one.rejected.mean()) for name, one in foreign.items()},
        "auroc": {name: auroc(found[0].score, one.score) for name, one in foreign.items()},
    }
