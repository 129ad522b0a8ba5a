"""Recognise the environment variables that Kubernetes sets for every Service of a namespace ("service links").

A Service named `demur-digits` gives each pod `DEMUR_DIGITS_SERVICE_HOST`, `DEMUR_DIGITS_PORT_8000_TCP_ADDR` and
so on: variables with the prefix of the settings that no operator set. Names and values are those of
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
"""

import ipaddress
import re
from collections.abc import Mapping

HOST = "_SERVICE_HOST"
SERVICE_PORT = re.compile(r"(?P<service>\w+)_SERVICE_PORT(_\w+)?")
LINK = re.compile(r"\w+_PORT(_\d+_(TCP|UDP|SCTP))?")
PART = re.compile(r"\w+_PORT_\d+_(TCP|UDP|SCTP)_(?P<part>PROTO|PORT|ADDR)")
URL = re.compile(r"(tcp|udp|sctp)://(?P<address>\[[0-9A-Fa-f:.]+\]|[0-9.]+):(?P<port>\d+)")


def is_service_link(name: str, environment: Mapping[str, str]) -> bool:
    """Whether the variable `name` has a name and a value that Kubernetes gives.

    A plain number under `..._SERVICE_PORT` counts only beside the address that Kubernetes always sets with it: alone
    it is more likely a mistake of the operator.
    """
    value = environment[name]
    if name.endswith(HOST):
        return _is_address(value)
    if match := SERVICE_PORT.fullmatch(name):
        return value.isdecimal() and _is_address(environment.get(match["service"] + HOST, ""))
    if match := PART.fullmatch(name):
        return {"PROTO": value in {"tcp", "udp", "sctp"}, "PORT": value.isdecimal(), "ADDR": _is_address(value)}[
            match["part"]
        ]
    return LINK.fullmatch(name) is not None and is_link_url(value)


def is_link_url(value: object) -> bool:
    """Whether this is a URL that Kubernetes sets where a port number might be expected: `tcp://10.0.0.1:8000`."""
    match = URL.fullmatch(value) if isinstance(value, str) else None
    return match is not None and _is_address(match["address"].strip("[]")) and int(match["port"]) <= 65535


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True
