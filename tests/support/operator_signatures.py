"""Read the signatures of some 500 operators once a process, not with every export: 0.2 seconds of each.

`torch.onnx.export` asks each function of onnxscript for its domain, for which onnxscript parses the function's source.
Nothing changes what it finds there.
"""

import functools
import importlib.util


def keep_operator_signatures() -> None:
    """For this process; where onnxscript is not installed, there are no exports."""
    if importlib.util.find_spec("onnxscript") is None:
        return
    from onnxscript._internal.values import TracedOnnxFunction

    read = TracedOnnxFunction.__dict__["function_ir"].fget
    TracedOnnxFunction.function_ir = property(functools.cache(read))  # type: ignore[assignment,method-assign]


keep_operator_signatures()
