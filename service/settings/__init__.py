"""Every setting of the service: one class, one prefix `DEMUR_`, and a description of each field."""

import logging
import os
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ..environment.kubernetes import is_link_url, is_service_link
from ..format.text import suggestion
from ..remote.cache import cache_folder, kept_at
from ..remote.places import is_uri
from .access import AccessSettings
from .computation import ComputationSettings
from .decisions import DecisionSettings
from .limits import LimitSettings
from .models import ModelSettings
from .records import RecordSettings

PREFIX = "DEMUR_"
# Names with the prefix that belong to the benchmarks, to docker-compose.yml and to the client, not to the service.
FOREIGN = frozenset({"DEMUR_DATA_DIR", "DEMUR_DATA_CACHE", "DEMUR_BUNDLE_DIR", "DEMUR_API_KEY"})
SEPARATORS = {"bundle": os.pathsep, "cors_origins": ",", "trusted_proxies": ",", "requested_rates": ","}
MAY_BE_EMPTY = frozenset(
    {"models", "default_model", "model_name", "shadow", "grpc_port", "cache_dir"}
)  # an empty value counts as not set
log = logging.getLogger("demur")


class UnknownSettingError(ValueError):
    """The environment holds a variable with the prefix that is no setting."""


class _Environment(EnvSettingsSource):
    """The environment, without the URL that Kubernetes sets as `DEMUR_PORT` for a Service named `demur`."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name != "port" or not is_link_url(value)}


class Settings(
    RecordSettings, AccessSettings, DecisionSettings, LimitSettings, ComputationSettings, ModelSettings, BaseSettings
):
    """Read from the environment (`DEMUR_PORT=9000`); arguments given in code or on the command line win."""

    # An error shows the setting that is wrong, not all of them.
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

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
        if not isinstance(values, dict):
            return values
        return {
            name: _split(value, _separator(name, value)) if name in SEPARATORS else value
            for name, value in values.items()
            if value != "" or name not in MAY_BE_EMPTY
        }

    @property
    def bundles(self) -> tuple[Path, ...]:
        """The folders named one by one; of a URI, where it is kept."""
        return tuple(self.folder_of(text) for text in self.bundle)

    @property
    def uris(self) -> tuple[str, ...]:
        """The bundles that are elsewhere."""
        return tuple(filter(is_uri, self.bundle))

    def folder_of(self, text: str) -> Path:
        """The folder that is named, or where the bundle of a URI is kept."""
        return kept_at(text, self.cache_dir or cache_folder()) if is_uri(text) else Path(text)

    def described(self) -> str:
        """Those that are not the default, as variables: `DEMUR_PORT=9000`. None is a secret: keys are in files."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        if self.uris:
            changed["bundle"] = ",".join(self.bundle)
        texts = {name: _joined(value, SEPARATORS.get(name, ",")) for name, value in changed.items()}
        return " ".join(f"{PREFIX}{name.upper()}={text}" for name, text in texts.items()) or "all by default"


def _separator(name: str, value: Any) -> str:
    """That of lists of folders is part of every URI."""
    return "," if name == "bundle" and isinstance(value, str) and is_uri(value) else SEPARATORS[name]


def _joined(value: Any, separator: str) -> str:
    return separator.join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _split(value: Any, separator: str) -> Any:
    if isinstance(value, Path):
        return (str(value),)
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(separator) if part.strip())
    return tuple(map(str, value)) if isinstance(value, list | tuple) else value


def load_settings(**given: Any) -> Settings:
    """Settings from the environment and from `given` (None: not given).

    Refuses unknown `DEMUR_*` variables, but not those that Kubernetes makes for a Service named `demur-...`.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(name for name in os.environ if name.upper().startswith(PREFIX)):
        if name.upper() not in known | FOREIGN and not is_service_link(name, os.environ):
            fields = [field.upper() for field in Settings.model_fields]
            hint = suggestion(name[len(PREFIX) :], fields).replace("'", f"'{PREFIX}", 1)
            raise UnknownSettingError(f"{name}: unknown setting{hint}; docs/settings.md lists all")
        if name.upper() in known and is_service_link(name, os.environ):
            log.warning(
                "%s: ignored %s, which Kubernetes made for a Service of this name; enableServiceLinks: false in the "
                "pod's spec keeps it away",
                name,
                os.environ[name],
            )
    return Settings(**{name: value for name, value in given.items() if value is not None})
