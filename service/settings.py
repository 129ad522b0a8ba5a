"""Every setting of the service: one class, one prefix `PROBITY_`, each field documented."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "PROBITY_"
# Names with the prefix that belong to the benchmarks, to docker-compose.yml and to the client, not to the service.
FOREIGN = frozenset({"PROBITY_DATA_DIR", "PROBITY_BUNDLE_DIR", "PROBITY_API_KEY"})

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], NoDecode]


MAY_BE_EMPTY = frozenset({"models", "default_model", "api_keys_file", "trusted_keys"})  # as good as not set
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")


class UnknownSettingError(ValueError):
    """The environment holds a variable with the prefix that no setting answers to."""


class Settings(BaseSettings):
    """Read from the environment (`PROBITY_PORT=9000`); arguments given in code or on the command line win."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    bundle: Annotated[
        Words, Field(description=f"Folders of bundles to serve, separated by '{os.pathsep}'.", validate_default=False)
    ] = ()
    models: Annotated[
        Path | None, Field(description="Folder whose subfolders are bundles; all of them are served.")
    ] = None
    default_model: Annotated[
        str | None, Field(description="Model that answers `/predict`; unset: the first one loaded.")
    ] = None
    watch_seconds: Annotated[
        Seconds | None,
        Field(description="How often to look for new, changed and removed bundles; unset: never."),
    ] = None
    repository_api: Annotated[
        bool, Field(description="Whether clients may load and unload models over `/v2/repository`.")
    ] = False
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    workers: Annotated[Positive, Field(description="Processes that serve on the port, each with its own models.")] = 1
    hang_seconds: Annotated[
        Seconds, Field(description="With several workers: one that shows no sign of life for so long is replaced.")
    ] = 30.0
    threads: Annotated[
        Positive | None,
        Field(description="CPU threads for one batch; unset: 1, or all for a network that takes long for one example."),
    ] = None
    concurrency: Annotated[
        Positive | None,
        Field(description="Batches computed at the same time; unset: as many as the CPU share has room for."),
    ] = None
    max_batch_size: Annotated[
        Positive | None, Field(description="Most examples in a batch; unset: what the Jacobians' memory allows.")
    ] = None
    max_queue_rows: Annotated[
        Positive, Field(description="Most examples that may wait for a model; more are answered 429.")
    ] = 4096
    max_queue_delay_seconds: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="How long an example waits for company while a worker is idle."),
    ] = 0.0
    request_timeout_seconds: Annotated[
        Seconds, Field(description="How long a request may wait; then it is answered 504. Clients may ask for less.")
    ] = 30.0
    degrade_after_seconds: Annotated[
        Seconds | None,
        Field(description="Requests that waited longer get the plain network's answer, marked degraded; unset: never."),
    ] = None
    max_body_bytes: Annotated[
        Positive, Field(description="Largest request body, also decompressed; a larger one is answered 413.")
    ] = 16 * 2**20
    max_pending_bytes: Annotated[
        Positive, Field(description="Most bytes of bodies and decoded inputs worked on at once; more are answered 429.")
    ] = 256 * 2**20
    body_timeout_seconds: Annotated[
        Seconds, Field(description="How long a body may take to arrive; then it is answered 408.")
    ] = 30.0
    write_timeout_seconds: Annotated[
        Seconds, Field(description="How long a client may take nothing of its answer; then the connection is closed.")
    ] = 30.0
    max_header_bytes: Annotated[
        Positive, Field(description="Largest head of a request; a larger one is answered 431.")
    ] = 32 * 2**10
    header_timeout_seconds: Annotated[
        Seconds, Field(description="How long a request's head may take to arrive; then the connection is closed.")
    ] = 10.0
    max_rows: Annotated[Positive, Field(description="Most examples in one request; more are answered 413.")] = 1024
    max_pixels: Annotated[
        Positive, Field(description="Most pixels of one image, checked before it is decoded; more are answered 413.")
    ] = 16 * 2**20
    max_total_pixels: Annotated[
        Positive, Field(description="Most pixels of all images of one request; more are answered 413.")
    ] = 64 * 2**20
    max_input_bytes: Annotated[
        Positive,
        Field(description="Most bytes of one request's examples as the network takes them; more are answered 413."),
    ] = 64 * 2**20
    jacobian_bytes: Annotated[
        Positive, Field(description="Memory for the Jacobians of the batches computed at once; it bounds them.")
    ] = 256 * 2**20
    interval_level: Annotated[
        float, Field(gt=0, lt=1, description="Probability that a regression answer's interval covers.")
    ] = 0.95
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="After SIGTERM, how long to go on accepting while `/health/ready` says 503 already.",
        ),
    ] = 0.0
    shutdown_seconds: Annotated[Positive, Field(description="How long running requests may then take to finish.")] = 30
    api_keys_file: Annotated[
        Path | None, Field(description="File of API keys' hashes; with it, requests need a key. Read again on change.")
    ] = None
    metrics_public: Annotated[bool, Field(description="Whether `/metrics` is answered without an API key.")] = True
    cors_origins: Annotated[
        Words, Field(description="Origins whose pages may call the service, separated by ','; none by default.")
    ] = ()
    trusted_keys: Annotated[
        Path | None, Field(description="File of public keys; with it, only bundles signed by one of them are loaded.")
    ] = None
    access_log: Annotated[
        bool, Field(description="Whether each request is a line of the log; the metrics count them anyway.")
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe message to log.")
    ] = "info"

    @model_validator(mode="before")
    @classmethod
    def split_lists(cls, values: Any) -> Any:
        """A list in the environment is text: paths as in PATH, origins with commas."""
        separators = {"bundle": os.pathsep, "cors_origins": ","}
        if not isinstance(values, dict):
            return values
        return {
            name: _split(value, separators[name]) if name in separators else value
            for name, value in values.items()
            if value != "" or name not in MAY_BE_EMPTY
        }

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """What could never have an effect is a mistake."""
        late = self.degrade_after_seconds
        if late is not None and late >= self.request_timeout_seconds:
            expected = f"less than request_timeout_seconds ({self.request_timeout_seconds:g})"
            raise ValueError(f"degrade_after_seconds: found {late:g}, expected {expected}: requests end before it")
        for origin in self.cors_origins:
            if origin != "*" and ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"cors_origins: found {origin!r:.100}, expected SCHEME://HOST[:PORT], without a path")
        return self

    @property
    def bundles(self) -> tuple[Path, ...]:
        """The folders named one by one."""
        return tuple(map(Path, self.bundle))


def _split(value: Any, separator: str) -> Any:
    if isinstance(value, Path):
        return (str(value),)
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(separator) if part.strip())
    return tuple(map(str, value)) if isinstance(value, list | tuple) else value


def load_settings(**given: Any) -> Settings:
    """Settings from the environment and from `given` (None: not given); refuses unknown `PROBITY_*` variables."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known | FOREIGN:
            raise UnknownSettingError(f"{name}: unknown setting; known are {', '.join(sorted(known))}")
    return Settings(**{name: value for name, value in given.items() if value is not None})
