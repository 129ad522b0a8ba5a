"""Which bundles are served, and how new ones are tried."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from ..format.manifest import MAX_MODEL_NAME
from ..format.text import checked_segment
from .shadow import ShadowChoice
from .types import Bytes, Seconds, Words


class ModelSettings(BaseModel):
    """Which bundles are served, and how new ones are tried."""

    bundle: Annotated[
        Words,
        Field(
            description=f"Bundles to serve: folders, separated by '{os.pathsep}'; or URIs, as `hf://acme/digits`, "
            "`s3://models/digits` or `oci://HOST/digits:9`, separated by ','.",
            validate_default=False,
        ),
    ] = ()
    cache_dir: Annotated[
        Path | None,
        Field(
            description="Where bundles that are named by a URI are kept; if unset, `$XDG_CACHE_HOME/demur`, or "
            "`~/.cache/demur`."
        ),
    ] = None
    models: Annotated[Path | None, Field(description="Folder of bundles; every bundle in it is served.")] = None
    default_model: Annotated[
        str | None, Field(description="Model that answers `/predict`; if unset, the first one loaded.")
    ] = None
    model_name: Annotated[
        str | None,
        Field(
            description="Name under which the one bundle is served; if unset, its own.",
            min_length=1,
            max_length=MAX_MODEL_NAME,
        ),
    ] = None
    watch_seconds: Annotated[
        Seconds | None,
        Field(description="How often to check for new, changed and removed bundles; if unset, never."),
    ] = None
    ready_requires: Annotated[
        Literal["named", "all", "any"],
        Field(
            description="Which models must be loaded for `/health/ready`: the named ones (bundles and the default "
            "model), all, or any one."
        ),
    ] = "named"
    shadow: Annotated[
        str | None,
        Field(
            description="A version that predicts beside the one that answers, for a share of the requests, as "
            "`digits/10@0.1`: metrics say how they differ."
        ),
    ] = None
    trial_bytes: Annotated[
        Bytes | None,
        Field(
            description="Memory limit of the trial process (Linux only); if unset, the memory that is free at the time."
        ),
    ] = None

    @property
    def shadow_choice(self) -> ShadowChoice | None:
        """The version and the share that `shadow` names."""
        return None if self.shadow is None else ShadowChoice.parse(self.shadow)

    @field_validator("model_name")
    @classmethod
    def check_name(cls, value: str | None) -> str | None:
        """Refuse what no bundle may be called."""
        return None if value is None else checked_segment(value)

    @field_validator("shadow")
    @classmethod
    def check_shadow(cls, value: str | None) -> str | None:
        """Refuse what names no version and no share."""
        if value is not None:
            ShadowChoice.parse(value)
        return value

    @model_validator(mode="after")
    def check_one_bundle(self) -> Self:
        """Refuse a name for several bundles, or for a folder of them."""
        if self.model_name is not None and (len(self.bundle) > 1 or self.models is not None):
            found = f"{len(self.bundle)} bundles" if self.models is None else "a folder of bundles"
            raise ValueError(f"model_name: found {found}, expected one bundle; `demur tag` gives copies other names")
        return self
