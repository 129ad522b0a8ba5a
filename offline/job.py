"""The job: what all stages of a fit share, checked and prepared from the user's input."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .config import FitConfig
from .data.changes import kind_of
from .data.given import Given, Like
from .data.likelihood import Likelihood, are_labels, likelihood_of
from .features.layers import FeatureLayers, feature_layers
from .jacobian.find_head import find_head
from .jacobian.jacobian import SubnetworkJacobian
from .jacobian.linear_head import LinearHead
from .jacobian.plan import make_jacobian
from .network.inputs import ONE_INPUT, InputForm, input_form
from .network.model_check import check_private
from .network.model_copy import copied_model, usable
from .network.onnx_lines import file_lines
from .network.onnx_network import OnnxNetwork
from .network.outputs import PLAIN, OutputForm, refuse_sigmoid, refuse_softmax
from .network.reached import reached_parameters, unreached_note
from .network.unsupported import differentiated_for_the_first_time
from .network.weights import WeightLayout
from .runtime.available_memory import default_budget
from .runtime.distributed import DistributedContext
from .runtime.progress import Track, silent

FEW = 16
LABELS_NOTE = (
    "the targets are 0 or 1 for each output: fitted as labels of which an example may have several (multilabel)"
)


@dataclass(frozen=True)
class Job:
    """`network` is a private copy; `example` (2, *input_shape) or fewer; `size` is S, at most.

    likelihood: of a regression, with the noise given, or the root mean square residual on the held-out data that tune.
    head: the network's linear head, if it has one. layers: what the added weights read; None: there are none. foreign
    (n, *input_shape): inputs unlike the training data, of which the report says what share is rejected; None: none were
    given. form: what the model returns; `network` returns outputs (B, K). notes: what the user is told of model and
    targets, a line each. takes: how the model takes its inputs; `network` takes one tensor. reached: the parameters
    that the outputs depend on; None: all.
    """

    config: FitConfig
    network: nn.Module
    layout: WeightLayout
    device: torch.device
    distributed: DistributedContext
    train: Given
    example: Tensor
    likelihood: Likelihood
    size: int
    memory_bytes: int
    track: Track
    head: LinearHead | None = None
    layers: FeatureLayers | None = None
    foreign: Tensor | None = None
    form: OutputForm = PLAIN
    notes: tuple[str, ...] = ()
    takes: InputForm = ONE_INPUT
    reached: frozenset[str] | None = None

    @property
    def weights(self) -> Tensor:
        """The trainable weights (D,)."""
        return self.layout.flatten(dict(self.network.named_parameters()))

    @property
    def like(self) -> Like:
        """What all inputs must be."""
        return Like(tuple(self.example.shape[1:]), self.example.dtype, self.takes.parts, self.train.name)

    def jacobian(self, indices: Tensor) -> SubnetworkJacobian:
        """The Jacobian of the weights at ascending positions."""
        return make_jacobian(self.network, self.layout, indices.to(self.device), self.example, self.head)

    def pass_over_training(self, description: str = "") -> Iterator[tuple[Tensor, Tensor]]:
        """One pass, with progress where it has a description; the same number of examples each time."""
        return self.train.pairs(self.device, track=silent if not description else self.track, description=description)


def resolve_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device: found {name!r}, but no GPU can be used here; give 'cpu' or 'auto'")
    return torch.device(name)


def prepare(
    given_model: object,
    train: Given,
    config: FitConfig,
    device: torch.device,
    distributed: DistributedContext,
    track: Track,
) -> Job:
    """Check model and first batch; `ValueError` for NaN in the weights, outputs of a wrong shape, S > D."""
    model = usable(given_model)
    inputs, targets, given = train.first(device)
    taken = input_form(model, given)
    if isinstance(model, OnnxNetwork):
        taken_apart = taken.arguments(inputs.cpu())
        model = model.suited(config.likelihood, *taken_apart, labels=targets.dim() > 1 and targets.shape[1] > 1)
    network = copied_model(model, device)
    layout = WeightLayout.of(model)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not bool((tensor < math.inf).all()):  # but masks may have -inf
            raise ValueError(f"model: found NaN or infinity in {name!r}, expected finite weights")
    columns = math.prod(targets.shape[1:]) if config.likelihood == "regression" else None
    real = targets.is_floating_point()  # two outputs of class numbers are logits, and no mean and variance
    outputs, form = check_private(model, network, inputs, config.likelihood == "classification", taken, columns, real)
    by_targets = config.likelihood == "classification" and are_labels(targets, len(inputs), outputs)
    if by_targets:
        config = FitConfig(**config.model_dump(exclude_unset=True) | {"likelihood": "multilabel"})
    likelihood = likelihood_of(
        config.likelihood, outputs, temperature=config.given_temperature, most_rows=config.curvature_outputs
    )
    likelihood.check_targets(targets, len(inputs))
    if config.likelihood == "classification" and not form.one_logit:
        refuse_softmax(network, inputs[:FEW])
    if config.likelihood != "regression":
        refuse_sigmoid(network, inputs[:FEW])
    with differentiated_for_the_first_time():
        reached, head = reached_parameters(network, layout, inputs[:2]), find_head(network, inputs[:2])
    last = None if head is None else head.path
    layers = feature_layers(config.added_weights, network, inputs[:2], kind_of(inputs, taken.parts), last)
    return Job(
        config=config,
        network=network,
        layout=layout,
        device=device,
        distributed=distributed,
        train=train,
        example=inputs[:2].clone(),
        likelihood=likelihood if layers is None else likelihood.with_shared_divisor(),
        size=config.resolve_size(layout.total),
        memory_bytes=config.memory_budget or default_budget(device),
        track=track,
        head=head,
        layers=layers,
        form=form,
        takes=taken,
        reached=reached,
        notes=(
            *(file_lines(model, *taken.arguments(inputs[:FEW].cpu())) if isinstance(model, OnnxNetwork) else ()),
            *taken.lines(),
            *form.lines(),
            *unreached_note(layout, reached),
            *([LABELS_NOTE] if by_targets else []),
        ),
    )
