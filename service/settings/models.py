"""Which bundles are served, and how new ones are tried."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from probity.service.settings.types import Bytes, Seconds, Words


class ModelSettings(BaseModel):
    """Which bundles are served, and how new ones are tried."""

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
    ready_requires: Annotated[
        Literal["named", "all", "any"],
        Field(
            description="Which models must be loaded for `/health/ready`: the named ones (bundles and the default "
            "model), all, or any one."
        ),
    ] = "named"
    trial_bytes: Annotated[
        Bytes | None,
        Field(
            description="Memory limit of the trial process (Linux only); if unset, the memory that is free at the time."
        ),
    ] = None
