"""onnxruntime with its telemetry off. All code imports it from this module; ruff checks that.

With telemetry on, which is its default, onnxruntime 1.31 sends events about this machine and its models to Microsoft
and queues them in the user's cache folder. It reads the variable once, at its import.
"""

import os

TELEMETRY_OFF = "ORT_DISABLE_TELEMETRY"

os.environ.setdefault(TELEMETRY_OFF, "1")  # a user who wants telemetry sets it to 0

import onnxruntime  # noqa: E402, TID251
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument  # noqa: E402, TID251

__all__ = ["InvalidArgument", "onnxruntime"]
