"""What a prediction costs by a count: multiply-adds, and what is bound by something else, in multiply-adds that take as
long.

A core does some 7e10 multiply-adds of float32 a second in onnxruntime. The constants are measured on convolutions,
MLPs, residual networks and transformers; `demur.offline.selection.price` puts them together.
"""

from collections.abc import Mapping

from ..features.activations import INPUTS
from ..features.added_weights import LINK_FEATURES, SCORE_FEATURES
from ..features.coordinates import DIRECTIONS
from ..features.layers import MOST_INPUTS, FeatureLayers

CALL_WORK = 2**18  # a call of the smallest graph
LEAST_WORK = 2**22  # the least that a call of the plain network counts as: a request costs several times as much
OPERATOR_WORK = 2**15  # an operator of the graph, however little it computes
POOLED_WORK = 2**8  # a number of a convolution's input, whose mean and deviation are activations of added weights
CROSSED_WORK = 2**6  # a number in the output of a layer that a backward pass crosses
GATHERED_WORK = 384  # an entry's input at a position of its layer, gathered, and multiplied for all outputs
READ_WORK = 2**3  # a number of the posterior's factor, read once a call
COSINE_WORK = 2**7  # a cosine
# Operators of the graph: for both variances of added weights, for the head, for a parameter outside it.
ADDED_OPERATORS, HEAD_OPERATORS, PARAMETER_OPERATORS = 55, 7, 30


def added_work(layers: FeatureLayers, widths: Mapping[str, int]) -> int:
    """Multiply-adds of both variances for one example, cosines among them; widths: F_l by path."""
    found = 0
    for paths, size in ((layers.link, LINK_FEATURES), (layers.score, SCORE_FEATURES)):
        width = sum(widths[path] for path in paths)
        coordinates = min(width, DIRECTIONS) + 1
        found += 2 * width * DIRECTIONS + size.features * (coordinates + size.kept + COSINE_WORK)
    inputs = widths[INPUTS] if INPUTS in layers.score else 0
    return found + (inputs**2 if inputs <= MOST_INPUTS else 0)
