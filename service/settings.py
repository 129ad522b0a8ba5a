"""Every setting of the service: one class, one prefix `PROBITY_`, each field documented."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "PROBITY_"
# Names with the prefix that belong to the benchmarks and to docker-compose.yml, not to the service.
FOREIGN = frozenset({"PROBITY_DATA_DIR", "PROBITY_BUNDLE_DIR"})

Positive = Annotated[int, Field(gt=0)]


class UnknownSettingError(ValueError):
    """The environment holds a variable with the prefix that no setting answers to."""


class Settings(BaseSettings):
    """Read from the environment (`PROBITY_PORT=9000`); arguments given in code or on the command line win."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    bundle: Annotated[Path | None, Field(description="Folder of the bundle to serve.")] = None
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    threads: Annotated[
        Positive | None, Field(description="CPU threads for one prediction; unset: the container's CPU share.")
    ] = None
    concurrency: Annotated[Positive, Field(description="Requests computed at the same time; others wait.")] = 1
    max_body_bytes: Annotated[Positive, Field(description="Largest request body; a larger one is answered 413.")] = (
        16 * 2**20
    )
    max_rows: Annotated[Positive, Field(description="Most examples in one request; more are answered 413.")] = 1024
    max_pixels: Annotated[
        Positive, Field(description="Most pixels of one image, checked before it is decoded; more are answered 413.")
    ] = 16 * 2**20
    jacobian_bytes: Annotated[
        Positive, Field(description="Memory for one chunk of Jacobians; larger batches are computed in chunks.")
    ] = 256 * 2**20
    interval_level: Annotated[
        float, Field(gt=0, lt=1, description="Probability that a regression answer's interval covers.")
    ] = 0.95
    shutdown_seconds: Annotated[
        Positive, Field(description="How long running requests may take to finish after SIGTERM.")
    ] = 30
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe message to log.")
    ] = "info"


def load_settings(**given: Any) -> Settings:
    """Settings from the environment and from `given` (None: not given); refuses unknown `PROBITY_*` variables."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known | FOREIGN:
            raise UnknownSettingError(f"{name}: unknown setting; known are {', '.join(sorted(known))}")
    return Settings(**{name: value for name, value in given.items() if value is not None})
