"""Added weights: coordinates, random features and the variance of their posterior, one example and number at a time."""

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def unit(h: Array) -> Array:
    """h / |h|; of zeros, zeros."""
    length = math.sqrt(sum(value * value for value in h))
    return h / max(length, 1e-12)


def standard(value: float, training: list[float]) -> float:
    """(a - E[a]) / sqrt(Var[a]), within 50 deviations, none of which is less than 0.02."""
    mean = sum(training) / len(training)
    deviation = math.sqrt(sum((other - mean) ** 2 for other in training) / len(training))
    return min(max((value - mean) / max(deviation, 0.02), -50.0), 50.0)


def log_length(h: Array) -> float:
    return math.log(max(math.sqrt(sum(value * value for value in h)), 1e-12))


def scaled_directions(parts: list[Array], training: list[Array]) -> Array:
    """z of one example: parts (F_l,) each; training (N, F_l) each."""
    columns = []
    for h, others in zip(parts, training, strict=True):
        units = [unit(other) for other in others]
        centre = sum(units) / len(units)
        scale = math.sqrt(sum(float((one - centre) @ (one - centre)) for one in units) / len(units))
        columns.append((unit(h) - centre) / (scale if scale > 1e-12 else 1.0))
    return np.concatenate(columns)


def coordinates(
    parts: list[Array], training: list[Array], directions: Array, *, with_rest: bool, with_lengths: bool
) -> Array:
    """t of one example."""

    def outside(z: Array) -> float:
        return log_length(z - directions @ (directions.T @ z))

    count = len(training[0])
    z = scaled_directions(parts, training)
    found = list(directions.T @ z)
    if with_rest:
        between = [scaled_directions([h[n] for h in training], training) for n in range(1, count, 2)]
        found.append(standard(outside(z), [outside(other) for other in between]))
    if with_lengths:
        found += [
            0.3 * standard(log_length(h), [log_length(other) for other in others])
            for h, others in zip(parts, training, strict=True)
        ]
    return np.array(found)


def random_features(t: Array, frequencies: Array, phases: Array) -> Array:
    """phi; frequencies (T, R), phases (R,)."""
    count = len(phases)
    return np.array([math.sqrt(2 / count) * math.cos(t @ frequencies[:, r] + phases[r]) for r in range(count)])


def added_variance(phi: Array, training: list[Array], precision: float, kept: int) -> float:
    """rho phi^T (C + rho I)^-1 phi, with the leading eigenpairs of C alone."""
    curvature = sum(np.outer(other, other) for other in training) / len(training)
    values, vectors = np.linalg.eigh(curvature)
    leading = sum(values[i] * np.outer(vectors[:, i], vectors[:, i]) for i in range(len(values))[-kept:])
    return float(precision * phi @ np.linalg.solve(leading + precision * np.eye(len(phi)), phi))
