"""HTTP clients that the environment configures, by variables that hold proxies and certificates."""

import os
import re
import ssl
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.request import getproxies

T = TypeVar("T")
LOGIN = re.compile(r"^(.*?//)?.*@")


def made(httpx: Any, make: Callable[[], T]) -> T:
    """What `make` makes with httpx, or with a package of its names; raises `ValueError` that names the variable of the
    environment that stands in the way, what it holds, without passwords, and the remedy."""
    try:
        return make()
    except Exception as error:
        if (problem := _problem(httpx, error)) is None:
            raise
    raise ValueError(f"{problem}; correct the variable, or unset it")  # without what was raised: it may hold a password


def _problem(httpx: Any, error: Exception) -> str | None:
    if isinstance(error, OSError):
        name = "SSLKEYLOGFILE" if error.filename else "SSL_CERT_FILE"
        expected = "a file that can be written" if error.filename else "a file of certificates in PEM"
        found = f"found {os.environ.get(name)!r:.200} ({error.strerror or error}), expected {expected}"
        return f"{name}: {found}" if name in os.environ else None
    proxies = getproxies()
    for scheme in ("http", "https", "all"):
        if value := proxies.get(scheme):
            shown = LOGIN.sub(r"\1", value)
            found = f"{_variable(scheme)}: found {shown!r:.200}"
            url, any_tls = value if "://" in value else f"http://{value}", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                httpx.HTTPTransport(proxy=url, verify=any_tls).close()
            except ImportError:
                return f"{found}, which needs the package socksio: pip install socksio"
            except Exception:  # of several kinds, without one above them
                return f"{found}, expected a proxy such as http://HOST:PORT"
    hosts = proxies.get("no")
    return (
        f"{_variable('no')}: found {hosts!r:.200}, expected names of hosts, with commas between them" if hosts else None
    )


def _variable(scheme: str) -> str:
    """The name by which it is set, in lower case where in both: that counts."""
    return max((name for name in os.environ if name.lower() == f"{scheme}_proxy"), default="the system's proxies")
