"""What may go wrong in a place that holds bundles."""

import importlib
from types import ModuleType

from ..format.files import BundleError

UNSOUND = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
"""What packages raise that take an answer for the JSON that they expect, where it is other, or nested too deep."""


class UnreachableError(BundleError):
    """The place did not answer, or not with what it holds: trying again later may help."""


def needed(package: str, uri: str) -> ModuleType:
    """The package, which is installed with the extra `remote`; raises `BundleError` where it is not."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = package.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != missing:
            raise
        raise BundleError(
            uri, f"needs the package {missing}, which is not installed", f"pip install {missing}"
        ) from None
