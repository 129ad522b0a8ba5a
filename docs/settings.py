"""`python -m docs.settings`: write docs/settings.md from the service's settings.

What a setting does and its default come from `service.settings.Settings`; when to change it stands here.
"""

from pathlib import Path
from typing import Any

from service.settings import PREFIX, Settings

PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = f"""# Settings of the service

<!-- Written by `make docs` from service/settings.py and docs/settings.py: change those. -->

Every setting is an environment variable with the prefix `{PREFIX}`. `probity serve` also has the options `--models`,
`--host` and `--port`, which override the environment.

* An unknown variable with this prefix prevents startup. Variables that Kubernetes creates for a Service named
  `probity-...` are ignored.
* An empty `{PREFIX}API_KEYS_FILE` or `{PREFIX}TRUSTED_KEYS` is an error: unset the variable to serve without it.
* With several workers, every limit on queues, bodies and memory applies to each worker separately.
* [Serving](serving.md) explains how the settings work together, [Security](security.md) covers keys and proxies.
"""
# When to change each setting, in the sections of the page.
WHEN = {
    "Models": {
        "bundle": "When you name bundles one by one and do not pass them as arguments to `probity serve`.",
        "models": "To serve a folder to which bundles are added over time.",
        "default_model": "Always set it with several models; otherwise the order of loading decides which one answers.",
        "watch_seconds": "When bundles are added, replaced or removed while the service runs.",
        "repository_api": "When a client such as Triton's manages the models. It requires a single worker.",
        "ready_requires": "`all`: no traffic until every model is loaded. `any`: a broken bundle stops no traffic.",
        "trial_seconds": "When a large bundle takes longer than this to load and predict.",
        "trial_bytes": "When other programs need the memory that is free while a bundle is loaded.",
    },
    "Network and processes": {
        "host": "`0.0.0.0` in a container, or when the proxy runs on another machine.",
        "port": "When port 8000 is taken.",
        "workers": "When requests are small and one process cannot use all processors, or to survive a hung batch.",
        "hang_seconds": "Lower it to replace a hung worker sooner.",
    },
    "Computation": {
        "threads": "When the automatic choice is wrong for your network; measure both.",
        "concurrency": "Together with `PROBITY_THREADS`, or to leave processors to other programs.",
        "max_batch_size": "Lower it for shorter batches, and so a lower latency for small requests.",
        "max_queue_delay_seconds": "A few milliseconds, when batches are small and throughput matters most.",
        "jacobian_bytes": "Raise it if many outputs or weights leave room for few examples; lower it to save memory.",
        "interval_level": "When clients need intervals with another coverage.",
    },
    "Deadlines and overload": {
        "max_queue_rows": "Lower it to reject overload before requests wait long; raise it for large requests.",
        "request_timeout_seconds": "To the longest your clients will wait.",
        "compute_timeout_seconds": "Raise it if one batch of your network takes this long.",
        "degrade_after_seconds": "When an answer without uncertainty is better than none under overload.",
    },
    "Limits on requests": {
        "max_body_bytes": "When clients send more at once. Change `client_max_body_size` of the proxy too.",
        "max_pending_bytes": "To fit the machine's memory: the service takes two to three times as much.",
        "max_header_bytes": "When clients send larger headers, such as long tokens.",
        "max_rows": "When clients send more examples at once.",
        "max_pixels": "When clients send larger images.",
        "max_total_pixels": "When clients send more or larger images at once.",
        "max_input_bytes": "When one request holds more data after decoding.",
    },
    "Slow clients": {
        "header_timeout_seconds": "Rarely: a proxy shields the service from slow clients.",
        "body_timeout_seconds": "When clients upload over slow connections without a proxy.",
        "write_timeout_seconds": "When clients read over slow connections without a proxy.",
    },
    "Start and end": {
        "drain_seconds": "Behind a load balancer: longer than it takes to notice that readiness fails.",
        "shutdown_seconds": "At least as long as your longest request; the orchestrator must wait longer still.",
    },
    "Access": {
        "api_keys_file": "When programs other than your own can reach the port.",
        "metrics_public": "`false`, when others can reach the port and Prometheus has a key.",
        "cors_origins": "When pages of another origin call the service from a browser.",
        "trusted_proxies": "When a proxy at another address stands in front of the service.",
        "trusted_keys": "When anyone else can write to the bundle folders.",
    },
    "Log": {
        "access_log": "`false`, when a proxy already logs requests, or to save time under load.",
        "log_level": "`debug` to investigate a fault, `warning` for a quiet log.",
    },
}
UNITS = {
    "seconds": "seconds",
    "bytes": "bytes",
    "pixels": "pixels",
    "rows": "examples",
    "size": "examples",
    "workers": "processes",
    "threads": "threads",
    "concurrency": "batches",
    "level": "probability",
}
COLUMNS = ("variable", "default", "unit", "what it does", "when to change it")


def page() -> str:
    """The whole page; `KeyError` for a setting that no section names."""
    missing = Settings.model_fields.keys() - {name for section in WHEN.values() for name in section}
    if missing:
        raise KeyError(f"docs/settings.py says nothing about {', '.join(sorted(missing))}; add a line to WHEN")
    sections = [f"## {title}\n\n{_table(advice)}" for title, advice in WHEN.items()]
    return "\n".join([INTRODUCTION, *sections])


def _table(advice: dict[str, str]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(_row(name, when) for name, when in advice.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, when: str) -> tuple[str, ...]:
    field = Settings.model_fields[name]
    # log_level is a word
    unit = "" if isinstance(field.default, str) else UNITS.get(name.rpartition("_")[2], "")
    return f"`{PREFIX}{name.upper()}`", _default(field.default, unit), unit, field.description or "", when


def _default(value: Any, unit: str) -> str:
    """As it would be written into the environment."""
    if value is None or value == ():
        return "unset"
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}` ({_readable(value)})" if unit == "bytes" else f"`{value}`"


def _readable(count: int) -> str:
    """16777216 -> 16 MiB."""
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count / 2**10:g} KiB"


if __name__ == "__main__":
    PAGE.write_text(page())
