"""Every setting of the service: one class, one prefix `PROBITY_`, and a description of each field."""

import ipaddress
import logging
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from service.environment.kubernetes import is_link_url, is_service_link

PREFIX = "PROBITY_"
# Names with the prefix that belong to the benchmarks, to docker-compose.yml and to the client, not to the service.
FOREIGN = frozenset({"PROBITY_DATA_DIR", "PROBITY_BUNDLE_DIR", "PROBITY_API_KEY"})

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, lt=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], NoDecode]

MAY_BE_EMPTY = frozenset({"models", "default_model"})  # an empty value counts as not set
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
log = logging.getLogger("probity")


class UnknownSettingError(ValueError):
    """The environment holds a variable with the prefix that is no setting."""


class _Environment(EnvSettingsSource):
    """The environment, without the URL that Kubernetes sets as `PROBITY_PORT` for a Service named `probity`."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name != "port" or not is_link_url(value)}


class Settings(BaseSettings):
    """Read from the environment (`PROBITY_PORT=9000`); arguments given in code or on the command line win."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    bundle: Annotated[
        Words, Field(description=f"Bundle folders to serve, separated by '{os.pathsep}'.", validate_default=False)
    ] = ()
    models: Annotated[Path | None, Field(description="Folder of bundles; every bundle in it is served.")] = None
    default_model: Annotated[
        str | None, Field(description="Model that answers `/predict`; if unset, the first one loaded.")
    ] = None
    watch_seconds: Annotated[
        Seconds | None,
        Field(description="How often to check for new, changed and removed bundles; if unset, never."),
    ] = None
    repository_api: Annotated[
        bool, Field(description="Whether clients may load and unload models through `/v2/repository`.")
    ] = False
    ready_requires: Annotated[
        Literal["named", "all", "any"],
        Field(
            description="Which models must be loaded for `/health/ready`: the named ones (bundles and the default "
            "model), all, or any one."
        ),
    ] = "named"
    trial_seconds: Annotated[
        Seconds,
        Field(
            description="How long a new bundle may take to load and predict in a trial process before it is rejected."
        ),
    ] = 60.0
    trial_bytes: Annotated[
        Positive | None,
        Field(
            description="Memory limit of the trial process (Linux only); if unset, the memory that is free at the time."
        ),
    ] = None
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    workers: Annotated[
        Positive, Field(description="Number of processes that serve the port, each with its own models.")
    ] = 1
    hang_seconds: Annotated[
        Seconds, Field(description="With several workers, how long one may send no heartbeat before it is replaced.")
    ] = 30.0
    threads: Annotated[
        Positive | None,
        Field(
            description="CPU threads per batch; if unset, 1, or all of them for a network that is slow on one example."
        ),
    ] = None
    concurrency: Annotated[
        Positive | None,
        Field(description="Batches computed in parallel; if unset, as many as the CPUs allow."),
    ] = None
    max_batch_size: Annotated[
        Positive | None,
        Field(
            description="Maximum examples per batch. It only lowers the built-in limit: 64, or fewer if "
            "`PROBITY_JACOBIAN_BYTES` holds fewer Jacobians."
        ),
    ] = None
    max_queue_rows: Annotated[
        Positive,
        Field(
            description="Maximum examples waiting for one model; further requests get 429. An empty queue accepts "
            "a request of any size."
        ),
    ] = 4096
    max_queue_delay_seconds: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="How long an example may wait for others to share its batch."),
    ] = 0.0
    request_timeout_seconds: Annotated[
        Seconds, Field(description="How long a request may take before it gets 504. Clients may ask for less.")
    ] = 30.0
    compute_timeout_seconds: Annotated[
        Seconds,
        Field(
            description="How long a batch may compute before `/health/live` and `/health/ready` return 503, until "
            "it ends."
        ),
    ] = 60.0
    degrade_after_seconds: Annotated[
        Seconds | None,
        Field(
            description="How long a request may wait before it gets the plain network's answer, marked as "
            "degraded; if unset, it keeps waiting."
        ),
    ] = None
    max_body_bytes: Annotated[
        Positive,
        Field(description="Maximum size of a request body, before and after decompression; a larger one gets 413."),
    ] = 16 * 2**20
    max_pending_bytes: Annotated[
        Positive,
        Field(
            description="Maximum bytes of bodies, decoded inputs and unsent responses held at once; further "
            "requests get 429. If no other request holds any, a request of any size is accepted."
        ),
    ] = 256 * 2**20
    body_timeout_seconds: Annotated[
        Seconds, Field(description="How long a body may take to arrive before the request gets 408.")
    ] = 30.0
    write_timeout_seconds: Annotated[
        Seconds, Field(description="How long a client may read none of its response before the connection is closed.")
    ] = 30.0
    max_header_bytes: Annotated[
        Positive,
        Field(description="Maximum size of a request's head (request line and headers); a larger one gets 431."),
    ] = 32 * 2**10
    header_timeout_seconds: Annotated[
        Seconds,
        Field(
            description="How long a request's head may take to arrive before the client gets 408 and the "
            "connection is closed."
        ),
    ] = 10.0
    max_rows: Annotated[Positive, Field(description="Maximum examples per request; one with more gets 413.")] = 1024
    max_pixels: Annotated[
        Positive, Field(description="Maximum pixels per image, checked before it is decoded; a larger image gets 413.")
    ] = 16 * 2**20
    max_total_pixels: Annotated[
        Positive, Field(description="Maximum pixels in all images of a request; a request with more gets 413.")
    ] = 64 * 2**20
    max_input_bytes: Annotated[
        Positive,
        Field(
            description="Maximum size of a request's examples after decoding; a larger request gets 413. One "
            "example is always accepted."
        ),
    ] = 64 * 2**20
    jacobian_bytes: Annotated[
        Positive,
        Field(
            description="Memory for the Jacobians of all batches computed at once; it limits the number of "
            "examples per batch."
        ),
    ] = 256 * 2**20
    false_reject_rate: Annotated[
        Rate | None,
        Field(
            description="Share of in-distribution inputs that may be rejected, for every model. None: the rate that "
            "each bundle was fitted with."
        ),
    ] = None
    requested_rates: Annotated[
        tuple[Rate, Rate] | None,
        NoDecode,
        Field(
            description="The lowest and highest `false_reject_rate` that a request may ask for, as `0.01,0.2`. None: a "
            "request may not choose."
        ),
    ] = None
    reject_by_class: Annotated[
        bool,
        Field(
            description="Whether the false-reject rate of a classification holds within each predicted class (classes "
            "with few held-out examples share a threshold), not only over all inputs."
        ),
    ] = False
    accepted_accuracy: Annotated[
        Rate | None,
        Field(
            description="Share of the accepted predictions that must be right, in place of a false-reject rate. The "
            "largest threshold is taken for which the held-out examples show it; a bundle that cannot show it is "
            "refused, with the number of examples that it lacks. None: no such demand."
        ),
    ] = None
    accepted_confidence: Annotated[
        Rate, Field(description="Confidence with which `PROBITY_ACCEPTED_ACCURACY` must be shown.")
    ] = 0.95
    interval_level: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="Probability that the interval in a regression response, or the prediction set in a "
            "classification response, holds the truth.",
        ),
    ] = 0.95
    intervals: Annotated[
        Literal["conformal", "gaussian"],
        Field(
            description="How wide intervals are: `conformal` as held-out residuals demand, or `gaussian` as the "
            "predictive distribution says. Bundles that keep no residuals, or too few for the level, give `gaussian`."
        ),
    ] = "conformal"
    cascade: Annotated[
        bool,
        Field(
            description="Whether bundles with a cascade answer with it: the cheaper first stage where its verdict is "
            "certain, the full one for the rest. Bundles without one serve as before."
        ),
    ] = False
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="After SIGTERM, how long to keep accepting requests while `/health/ready` already returns 503.",
        ),
    ] = 0.0
    shutdown_seconds: Annotated[
        Positive, Field(description="How long running requests may take to finish after the drain.")
    ] = 30
    api_keys_file: Annotated[
        Path | None,
        Field(description="File of hashed API keys; if set, requests need a key. It is read again when it changes."),
    ] = None
    metrics_public: Annotated[bool, Field(description="Whether `/metrics` is served without an API key.")] = True
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
    audit_file: Annotated[
        Path | None,
        Field(
            description="File that gets one JSON line for each prediction: its id, model, score, p-value and decision. "
            "None: no such file."
        ),
    ] = None
    audit_bytes: Annotated[
        Positive, Field(description="Size from which the audit file is renamed and a new one begun, in bytes.")
    ] = 64 * 2**20
    audit_files: Annotated[Positive, Field(description="How many renamed audit files are kept.")] = 10
    audit_inputs: Annotated[
        bool, Field(description="Whether the audit file holds the inputs too, as the network takes them.")
    ] = False
    feedback_file: Annotated[
        Path | None,
        Field(
            description="SQLite file that remembers answers, without inputs, until their labels come by `POST "
            "/feedback`. None: no feedback."
        ),
    ] = None
    feedback_examples: Annotated[
        Positive, Field(description="How many of the latest examples the feedback file remembers.")
    ] = 1_000_000
    feedback_keys_file: Annotated[
        Path | None,
        Field(description="File of hashed API keys that `/feedback` needs, in place of those of the other routes."),
    ] = None
    access_log: Annotated[
        bool, Field(description="Whether to log each request; the metrics count requests either way.")
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe level to log.")
    ] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Values given in code, then the environment; nothing else."""
        return init_settings, _Environment(settings_cls)

    @field_validator("api_keys_file", "feedback_keys_file", "trusted_keys", mode="before")
    @classmethod
    def refuse_no_protection(cls, value: Any) -> Any:
        """Refuse an empty value, a variable that was not filled in: it must not open the service to everybody."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("expected the path of a file; leave the variable out to serve without this protection")
        return value

    @model_validator(mode="before")
    @classmethod
    def split_lists(cls, values: Any) -> Any:
        """Split lists in the environment: bundles as in PATH, the others at commas."""
        separators = {"bundle": os.pathsep, "cors_origins": ",", "trusted_proxies": ",", "requested_rates": ","}
        if not isinstance(values, dict):
            return values
        return {
            name: _split(value, separators[name]) if name in separators else value
            for name, value in values.items()
            if value != "" or name not in MAY_BE_EMPTY
        }

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that contradict each other or could never have an effect."""
        late = self.degrade_after_seconds
        if late is not None and late >= self.request_timeout_seconds:
            expected = f"less than request_timeout_seconds ({self.request_timeout_seconds:g})"
            raise ValueError(f"degrade_after_seconds: found {late:g}, expected {expected}: requests end before it")
        for origin in self.cors_origins:
            if origin != "*" and ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"cors_origins: found {origin!r:.100}, expected SCHEME://HOST[:PORT], without a path")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}; expected an address or ADDRESS/BITS") from None
        return self

    @model_validator(mode="after")
    def check_rule(self) -> Self:
        """Refuse two demands where each would decide which scores are accepted, and rates in the wrong order."""
        if self.accepted_accuracy is not None:
            other = [name for name in ("false_reject_rate", "requested_rates") if getattr(self, name) is not None]
            other += ["reject_by_class"] if self.reject_by_class else []
            if other:
                found = f"accepted_accuracy: found {self.accepted_accuracy:g} and {other[0]} too"
                raise ValueError(f"{found}, expected one of them: each decides which scores are accepted")
        if self.requested_rates is not None and self.requested_rates[0] > self.requested_rates[1]:
            low, high = self.requested_rates
            raise ValueError(f"requested_rates: found {low:g},{high:g}, expected the lower one first")
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
    """Settings from the environment and from `given` (None: not given).

    Refuses unknown `PROBITY_*` variables, but not those that Kubernetes makes for a Service named `probity-...`.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(name for name in os.environ if name.upper().startswith(PREFIX)):
        if name.upper() not in known | FOREIGN and not is_service_link(name, os.environ):
            raise UnknownSettingError(f"{name}: unknown setting; known are {', '.join(sorted(known))}")
        if name.upper() in known and is_service_link(name, os.environ):
            log.warning(
                "%s: ignored %s, which Kubernetes made for a Service of this name; enableServiceLinks: false in the "
                "pod's spec keeps it away",
                name,
                os.environ[name],
            )
    return Settings(**{name: value for name, value in given.items() if value is not None})
