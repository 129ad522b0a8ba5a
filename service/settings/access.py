"""Who may ask, and whose bundles are loaded."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from .types import Words

ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")


class AccessSettings(BaseModel):
    """Who may ask, and whose bundles are loaded."""

    api_keys_file: Annotated[
        Path | None,
        Field(description="File of hashed API keys; if set, requests need a key. It is read again when it changes."),
    ] = None
    metrics_public: Annotated[bool, Field(description="Whether `/metrics` is served without an API key.")] = True
    playground: Annotated[
        bool, Field(description="Whether `/` is a page on which people try the default model in a browser.")
    ] = True
    cors_origins: Annotated[
        Words, Field(description="Origins whose pages may call the service, separated by ','; none by default.")
    ] = ()
    trusted_proxies: Annotated[
        Words,
        Field(
            description="Proxies (addresses or networks, separated by ',') that are trusted to name the client in "
            "`X-Forwarded-For`.",
        ),
    ] = ("127.0.0.1", "::1")
    trusted_keys: Annotated[
        Path | None, Field(description="File of public keys; if set, only bundles signed with one of them are loaded.")
    ] = None

    @model_validator(mode="after")
    def check_addresses(self) -> Self:
        """Refuse origins and proxies that are none."""
        for origin in self.cors_origins:
            if origin != "*" and ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"cors_origins: found {origin!r:.100}, expected SCHEME://HOST[:PORT], without a path")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}; expected an address or ADDRESS/BITS") from None
        if not self.metrics_public and self.api_keys_file is None:
            raise ValueError("metrics_public: found false without api_keys_file, expected keys that `/metrics` needs")
        return self
