"""The manifest of a fit, of what its steps say of themselves."""

import importlib.metadata
import platform

from demur.service.bundle import Manifest

from ..section import Section

LIBRARIES = ("demur", "torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def make_manifest(said: Section) -> Manifest:
    """Before its files are written and the bundle is verified."""
    return Manifest(
        **said.fields, verification=None, metrics=dict(said.metrics), libraries=_libraries(), warnings=said.warnings
    )


def _libraries() -> dict[str, str]:
    """Versions that made the bundle, so that a difference can be traced."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
