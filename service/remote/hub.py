"""The Hugging Face Hub as a place of bundles, through huggingface_hub. `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`
mean what they mean to that."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..environment.http_client import made
from ..format.files import DISK_FULL, README, BundleError
from .errors import UNSOUND, UnreachableError, check_endpoint, needed
from .place import Report, check_size, left_over, unheard

PARTS = re.compile(r"(?P<repository>[^/@]+/[^/@]+)(?:@(?P<revision>[^/@]+))?(?:/(?P<folder>[^@]+?))?/?")
FORM = "hf://OWNER/NAME[@REVISION][/FOLDER]"
READ_SECONDS = 30
LOG_IN = "check the name; of a private repository, set HF_TOKEN to a token that may read it"


class Hub:
    """A bundle in a repository of models, in a folder of it or at its top.

    The revision is looked up once: all files are of one commit.
    """

    def __init__(self, rest: str) -> None:
        self.uri = f"hf://{rest}"
        found = PARTS.fullmatch(rest)
        if found is None:
            raise BundleError(self.uri, "found another form of URI", f"give {FORM}")
        self._repository, self._folder = found["repository"], found["folder"]
        self._revision = None if found["revision"] is None else unquote(found["revision"])
        check_endpoint("HF_ENDPOINT", self.uri)
        # Both are read when the package is imported. Xet writes into the home folder, and its errors have no types.
        for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET"):
            os.environ.setdefault(name, "1")
        self._hub: Any = needed("huggingface_hub", self.uri)
        self._errors: Any = needed("huggingface_hub.errors", self.uri)
        self._endpoint = os.environ.get("HF_ENDPOINT")
        self._api = self._hub.HfApi(endpoint=self._endpoint)
        httpx = needed(self._errors.HTTPError.__module__.partition(".")[0], self.uri)  # under one of its names
        try:
            made(httpx, self._hub.get_session)  # which every later request shares
        except ValueError as error:
            raise BundleError(self.uri, *f"{error}".rsplit("; ", 1)) from None
        self._commit: str | None = None
        self._sizes: dict[str, int] = {}

    def fetch(self, name: str, file: Path, limit: int, report: Report = unheard) -> bool:
        """Download one file; the size is known before."""
        if self._commit is None:
            self._look()
        path = self._inside(name)
        if path not in self._sizes:
            return False
        check_size(f"{self.uri}/{name}", self._sizes[path], limit)
        # Beside the file, on the same disk; huggingface_hub leaves notes there for a next download.
        with tempfile.TemporaryDirectory(prefix=".hub-", dir=file.parent) as scratch:
            with self._explained():
                downloaded = self._hub.hf_hub_download(
                    self._repository,
                    path,
                    revision=self._commit,
                    local_dir=scratch,
                    endpoint=self._endpoint,
                    tqdm_class=_counting(f"{self.uri}/{name}", limit, report),
                )
            Path(downloaded).rename(file)
        check_size(f"{self.uri}/{name}", file.stat().st_size, limit)
        return True

    def store(self, files: Mapping[str, Path], replace: bool) -> str:
        """One commit, to a repository that is made, private, where there is none; the commits of before stay.

        A README.md that is there stays too, unless it is to be replaced: people write on it.
        """
        add, delete = self._hub.CommitOperationAdd, self._hub.CommitOperationDelete
        with self._explained():
            self._api.create_repo(self._repository, private=True, exist_ok=True)
            self._commit = None
            self._look()
            gone = [self._inside(name) for name in left_over(files)]
            keeps = set() if replace else {self._inside(README)} & self._sizes.keys()
            inside = {self._inside(name): file for name, file in files.items()}
            operations = [add(path, str(file)) for path, file in inside.items() if path not in keeps]
            operations += [delete(path) for path in gone if path in self._sizes]
            made = self._api.create_commit(
                self._repository, operations, commit_message="Push a bundle", revision=self._revision
            )
        folder = "" if self._folder is None else f"/{self._folder}"
        return f"hf://{self._repository}@{made.oid}{folder}"

    def close(self) -> None:
        """Nothing is held."""

    def _inside(self, name: str) -> str:
        return name if self._folder is None else f"{self._folder}/{name}"

    def _look(self) -> None:
        """The commit, and the sizes of its files."""
        with self._explained():
            found = self._api.model_info(
                self._repository, revision=self._revision, files_metadata=True, timeout=READ_SECONDS
            )
            self._sizes = {file.rfilename: int(file.size or 0) for file in found.siblings or ()}
            self._commit = str(found.sha)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except BundleError:
            raise
        except errors.RevisionNotFoundError:
            raise BundleError(self.uri, "found no such revision", "name a branch, a tag or a commit") from None
        except errors.HfHubHTTPError as error:
            raise self._refused(error) from None
        except (*UNSOUND, errors.LocalTokenNotFoundError) as error:  # of a name, or of an answer
            raise BundleError(self.uri, f"{type(error).__name__}: {error}", LOG_IN) from None
        except (errors.HTTPError, errors.LocalEntryNotFoundError, OSError) as error:
            if getattr(error, "errno", None) in DISK_FULL:
                raise
            problem = f"did not answer: {type(error).__name__}: {error}"
            raise UnreachableError(self.uri, problem, "check the network, and HF_ENDPOINT") from None

    def _refused(self, error: Any) -> BundleError:
        status = error.response.status_code
        if status >= 500 or status == 429:
            return UnreachableError(self.uri, f"answered {status}", "try again later")
        if status == 404 or isinstance(error, self._errors.RepositoryNotFoundError):
            return BundleError(self.uri, f"found no such repository, or none that may be read ({status})", LOG_IN)
        said = error.server_message or error
        return BundleError(self.uri, f"the Hub refused ({status}): {said}", "set HF_TOKEN to a token that may do this")


def _counting(uri: str, limit: int, report: Report) -> Any:
    """The class of a progress bar that shows nothing, a service's log being no terminal, and ends what is too long."""
    tqdm: Any = needed("huggingface_hub.utils", uri).tqdm

    class Counting(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})
            self.done = 0

        def update(self, count: float | None = 1) -> None:
            self.done += int(count or 0)
            check_size(uri, self.done, limit)
            report(int(count or 0))

    return Counting
