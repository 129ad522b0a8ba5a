"""The output of every layer in one forward pass."""

from torch import Tensor, nn

Output = tuple[str, nn.Module, Tensor]


def layer_outputs(model: nn.Module, x: Tensor) -> list[Output]:
    """Path, layer and floating-point output (its first tensor) of every call, in the order in which calls end.

    A layer comes before the modules that contain it; calls without a floating-point output are left out.
    """
    calls: list[Output] = []
    paths = {module: path for path, module in model.named_modules()}

    def record(module: nn.Module, _: object, output: object) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, Tensor) and first.is_floating_point():
            calls.append((paths[module], module, first))

    handles = [module.register_forward_hook(record) for module in paths]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return calls
