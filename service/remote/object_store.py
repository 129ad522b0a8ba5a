"""Buckets of S3, Google Cloud Storage and Azure as places of bundles, through obstore.

Who may read is said by the variables of each cloud's own tools (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
`GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, ...), or by the machine's own identity.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..format.files import MANIFEST, BundleError
from .errors import UnreachableError, check_endpoint, needed
from .place import MOST_SECONDS, Report, left_over, opened, refuse_bundle_there, unheard, write_blocks

STORES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
# A service that starts waits for this before it serves the copy of before.
RETRIES, RETRY_SECONDS, CONNECT_SECONDS, READ_SECONDS = 3, 20, 5, 30
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
PASSING = re.compile(r" in [\d.]+(?:ns|µs|ms|s)\b|(?<=://)[^/@\s]+@")  # what differs each time, and a password


class ObjectStore:
    """A bundle in a bucket, under a prefix."""

    def __init__(self, scheme: str, bucket: str, prefix: str) -> None:
        self.uri = f"{scheme}://{bucket}/{prefix}"
        self._scheme, self._obstore = scheme, needed("obstore", self.uri)
        store = getattr(needed("obstore.store", self.uri), STORES[scheme])
        client = {
            "allow_http": True,  # of an endpoint without TLS, which is one that the operator named
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=READ_SECONDS),
            "timeout": timedelta(seconds=MOST_SECONDS),
        }
        retry = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
        for name in ENDPOINTS[scheme]:
            check_endpoint(name, self.uri)
        with self._explained():
            self._store = store(bucket, prefix=prefix, client_options=client, retry_config=retry)

    def fetch(self, name: str, file: Path, limit: int, report: Report = unheard) -> bool:
        """Stream one object into the file."""
        with self._explained():
            try:
                found = self._obstore.get(self._store, name)
            except (FileNotFoundError, self._obstore.exceptions.NotFoundError):
                return False
            blocks = map(bytes, found.stream(min_chunk_size=1))  # as they come: `in_time` ends it between two
            write_blocks(blocks, file, f"{self.uri}/{name}", limit, report)
        return True

    def store(self, files: Mapping[str, Path], replace: bool) -> str:
        """Put the objects, the manifest last: a reader finds the old bundle, or one that its hashes refuse."""
        with self._explained():
            there = self._exists(MANIFEST)
        if there and not replace:
            refuse_bundle_there(self.uri, "prefix")
        for name in sorted(files, key=lambda name: name == MANIFEST):
            with opened(files[name]) as stream, self._explained():
                self._obstore.put(self._store, name, stream)
        if there:
            self._remove(left_over(files))
        return self.uri

    def close(self) -> None:
        """Nothing is held."""

    def _exists(self, name: str) -> bool:
        try:
            self._obstore.head(self._store, name)
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError):
            return False
        return True

    def _remove(self, names: list[str]) -> None:
        with self._explained():
            for name in names:
                if self._exists(name):
                    self._obstore.delete(self._store, name)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        errors: Any = self._obstore.exceptions
        try:
            yield
        except BundleError:
            raise
        except ValueError as error:
            raise BundleError(self.uri, f"found another form of URI: {error}", "correct it") from None
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            remedy = f"check what may be read, and {CREDENTIALS[self._scheme]}"
            raise BundleError(self.uri, f"access was refused: {_first_line(error)}", remedy) from None
        except (FileNotFoundError, errors.NotFoundError) as error:
            raise BundleError(self.uri, f"found no such bucket: {_first_line(error)}", "check the name") from None
        except errors.BaseError as error:
            remedy = f"check the network, and {CREDENTIALS[self._scheme]}"
            raise UnreachableError(self.uri, f"did not answer: {_first_line(error)}", remedy) from None


def _first_line(error: Exception) -> str:
    """Of an error of obstore, whose other lines are of its own debugging."""
    return PASSING.sub("", f"{error}".strip().partition("\n")[0])[:400]
