"""What may go wrong in a place that holds bundles."""

import importlib
import os
import re
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


def check_endpoint(name: str, uri: str) -> None:
    """`BundleError` where the variable holds no URL: packages panic at that, or fail when they are imported. An empty
    one, as of a template that has nothing to fill in, is none."""
    if not os.environ.get(name, "unset"):
        del os.environ[name]
    value = os.environ.get(name)
    found = value and re.fullmatch(
        r"https?://([!-~]+@)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?(/[!-~]*)?", value
    )
    if value is not None and not (found and 0 < int(found["port"] or 80) < 2**16):
        remedy = "give one like https://HOST:PORT, with a port from 1 to 65535"
        raise BundleError(uri, f"found {name}={value!r:.100}, expected a URL", remedy)
