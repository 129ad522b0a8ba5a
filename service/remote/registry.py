"""Registries of container images (OCI) as places of bundles, through oras: one layer for each file, under its name.

`oras push HOST/NAME:TAG manifest.json model.onnx ...` makes the same. Who may read is said by `docker login`.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..format.files import BLOCK_BYTES, MANIFEST, BundleError
from ..format.json_names import unique
from .errors import UNSOUND, UnreachableError, needed
from .place import Report, check_size, refuse_bundle_there, unheard, write_blocks

REFERENCE = re.compile(
    r"(?P<host>[^/@]+)/(?P<repository>[a-z0-9][a-z0-9._/-]*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))"
)
WITHOUT_TLS = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?")  # as docker has it
TITLE, MANIFEST_TYPE = "org.opencontainers.image.title", "application/vnd.oci.image.manifest.v1+json"
FILE_TYPE = "application/octet-stream"
CONNECT_SECONDS, READ_SECONDS, RETRIES, BACKOFF_SECONDS = 5, 30, 3, 0.5
MAX_MANIFEST_BYTES = 4 * 2**20  # as registries have it
FORM = "oci://HOST/REPOSITORY:TAG, or with @sha256:DIGEST"
PROXIES = "check the host, and HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
LOG_IN = "check the name; of a private repository, run `docker login` or `oras login` first"


class Registry:
    """A bundle as an artifact under a tag or a digest."""

    def __init__(self, rest: str) -> None:
        self.uri = f"oci://{rest}"
        found = REFERENCE.fullmatch(rest)
        if found is None:
            raise BundleError(self.uri, "found another form of URI", f"give {FORM}")
        self._host, self._repository, self._digest = found["host"], found["repository"], found["digest"]
        self._container = _container(self.uri, found)
        self._opened: Any = None
        self._layers: dict[str, dict[str, Any]] | None = None

    def fetch(self, name: str, file: Path, limit: int, report: Report = unheard) -> bool:
        """Stream one layer into the file, and compare its digest."""
        with self._explained():
            if self._layers is None:
                self._layers = self._look()
            if self._layers == {}:
                raise BundleError(self.uri, "found no such artifact", LOG_IN)
            layer, uri = self._layers.get(name), f"{self.uri} {name}"
            if layer is None:
                return False
            check_size(uri, int(layer["size"]), limit)
            with self._registry.get_blob(self._container, layer["digest"], stream=True) as response:
                response.raise_for_status()
                hashed = hashlib.sha256()
                blocks = (_noted(hashed, block) for block in response.iter_content(BLOCK_BYTES))
                write_blocks(blocks, file, uri, limit, report)
            if layer["digest"] != f"sha256:{hashed.hexdigest()}":
                raise BundleError(
                    uri, f"found sha256:{hashed.hexdigest()}, expected {layer['digest']}", "push it again"
                )
        return True

    def store(self, files: Mapping[str, Path], replace: bool) -> str:
        """Push the files; the tag moves to them at once."""
        if self._digest is not None:
            raise BundleError(self.uri, "found a digest, expected a tag to push to", "name a tag")
        with self._explained():
            if not replace and self._look():
                refuse_bundle_there(self.uri, "tag")
            parts = [f"{file}:{FILE_TYPE}" for file in files.values()]
            pushed = self._registry.push(
                self._container,
                config_path=_docker_config(),
                files=parts,
                disable_path_validation=True,
                quiet=True,
                do_chunked=False,
            )
        digest = pushed.headers.get("Docker-Content-Digest")
        return f"oci://{self._host}/{self._repository}@{digest}" if digest else self.uri

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.session.close()

    @property
    def _registry(self) -> Any:
        """The client, which knows how the registry wants to be asked, and by whom."""
        if self._opened is None:
            self._opened = _client(self.uri, self._container)
        return self._opened

    def _look(self) -> dict[str, dict[str, Any]]:
        """The layers by the names of their files; none where the artifact is not there."""
        registry = self._registry
        url = f"{registry.prefix}://{self._container.manifest_url()}"
        with registry.do_request(url, "GET", headers={"Accept": MANIFEST_TYPE}, stream=True) as response:
            if response.status_code == 404:
                return {}
            response.raise_for_status()
            content = _limited(response, self.uri)
        if self._digest is not None:
            hashed = f"sha256:{hashlib.sha256(content).hexdigest()}"
            if hashed != self._digest:
                raise BundleError(self.uri, f"found an artifact with {hashed}", "push it again")
        return self._named(content)

    def _named(self, manifest: bytes) -> dict[str, dict[str, Any]]:
        try:
            layers = json.loads(manifest, object_pairs_hook=unique)["layers"]
            named = {
                str(layer["annotations"][TITLE]): layer for layer in layers if TITLE in layer.get("annotations", {})
            }
            sound = all(isinstance(each["digest"], str) and isinstance(each["size"], int) for each in named.values())
        except UNSOUND:
            sound, named = False, {}
        if not sound or MANIFEST not in named:
            remedy = "push one with `demur push`; an image that holds a bundle in its file system is none"
            raise BundleError(self.uri, "found something else, expected an artifact with a bundle's files", remedy)
        return named

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        requests: Any = needed("requests.exceptions", self.uri)
        refusals: Any = needed("oras.auth", self.uri).AuthenticationException
        try:
            yield
        except BundleError:
            raise
        except refusals as error:
            raise BundleError(self.uri, f"access was refused: {error}", LOG_IN) from None
        except requests.HTTPError as error:
            raise self._refused(error.response.status_code) from None
        except (requests.InvalidURL, requests.MissingSchema, requests.InvalidSchema) as error:
            raise BundleError(self.uri, f"the registry leads elsewhere: {error}", PROXIES) from None
        except requests.RequestException as error:
            problem = "did not answer: " + re.sub(r"[?]\S+", "", f"{type(error).__name__}: {error}")
            raise UnreachableError(self.uri, problem, "check the network and the host") from None
        except UNSOUND as error:  # what oras raises for an answer that it did not expect
            raise BundleError(self.uri, f"the registry refused: {error}", LOG_IN) from None

    def _refused(self, status: int) -> BundleError:
        if status >= 500 or status == 429:
            return UnreachableError(self.uri, f"answered {status}", "try again later")
        return BundleError(self.uri, f"the registry refused ({status})", LOG_IN)


def _limited(response: Any, uri: str) -> bytes:
    content = b""
    for block in response.iter_content(BLOCK_BYTES):
        content += block
        check_size(uri, len(content), MAX_MANIFEST_BYTES)
    return content


def _container(uri: str, found: "re.Match[str]") -> Any:
    """What the URI names, as oras has it; oras itself would take a host without a dot for a folder of docker.io."""
    container: Any = needed("oras.container", uri).Container("any")
    container.registry, container.namespace, container.repository = found["host"], None, found["repository"]
    container.tag, container.digest = found["tag"], found["digest"]
    return container


def _docker_config() -> str | None:
    """The file with the logins, where it is not the usual one."""
    folder = os.environ.get("DOCKER_CONFIG")
    return None if not folder else str(Path(folder) / "config.json")


def _client(uri: str, container: Any) -> Any:
    """oras' client, for the scheme by which the registry wants to know who asks; raises `BundleError`."""
    host = container.registry
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if bundle and not Path(bundle).exists():
        raise BundleError(uri, f"found no certificates at {bundle}", "correct REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE")
    client = _patient(uri, host, "token")
    challenge = client.session.get(f"{client.prefix}://{host}/v2/").headers.get("WWW-Authenticate", "")
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() == "basic":
        client.session.close()
        client = _patient(uri, host, "basic")
    elif scheme and re.search(r'realm="https?://', rest) is None:
        raise BundleError(uri, f"found the challenge {challenge!r:.200}, expected Basic, or Bearer with a URL", LOG_IN)
    config = _docker_config()
    try:
        client.auth.load_configs(container, configs=None if config is None else [config])
    except (*UNSOUND, OSError) as error:
        problem = f"the logins of docker (config.json) cannot be read: {type(error).__name__}: {error}"
        raise BundleError(uri, problem, "mend the file") from None
    if scheme.lower() == "basic" and not getattr(client.auth, "_basic_auth", None):
        raise BundleError(uri, "access was refused: the registry asks for a user and a password", LOG_IN)
    return client


def _patient(uri: str, host: str, scheme: str) -> Any:
    """oras' client with limits on how long it waits: its own retries take the most of a minute, and no call ends."""
    provider: Any = needed("oras.provider", uri)
    adapters: Any = needed("requests.adapters", uri)
    retry: Any = needed("urllib3", uri).Retry

    class Client(provider.Registry):  # type: ignore[misc]
        do_request = provider.Registry.do_request.__wrapped__

    class Patient(adapters.HTTPAdapter):  # type: ignore[misc]
        def send(self, request: Any, stream: bool = False, **options: Any) -> Any:
            _check_receiver(uri, request, f"{client.prefix}://{host}", scheme)
            options["timeout"] = CONNECT_SECONDS, READ_SECONDS
            response = super().send(request, stream=stream, **options)
            if not stream or response.status_code >= 300:  # requests would read it to its end, however far that is
                with response:
                    response._content = _limited(response, uri)  # noqa: SLF001
            return response

    client = Client(hostname=host, insecure=WITHOUT_TLS.fullmatch(host) is not None, auth_backend=scheme)
    retries = retry(
        RETRIES,
        read=0,
        backoff_factor=BACKOFF_SECONDS,
        status_forcelist=(502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,  # the registry does not say how long to sleep
    )
    for prefix in ("http://", "https://"):
        client.session.mount(prefix, Patient(max_retries=retries))
    return client


def _check_receiver(uri: str, request: Any, registry: str, scheme: str) -> None:
    """Raises `BundleError` for a request that tells a password or a token to another than may know it.

    That is the registry itself, by scheme, host and port; and of a registry that takes tokens, where they are given
    for the password, which it may name if it is reached by https.
    """
    said, parse = request.headers.get("Authorization"), needed("urllib3.util", uri).parse_url
    to = parse(request.url)
    gives_tokens = scheme == "token" and said is not None and said.startswith("Basic ") and to.scheme == "https"
    if said is not None and _origin(to) != _origin(parse(registry)) and not gives_tokens:
        problem = f"the registry wants the login sent to {to.scheme}://{to.netloc}"
        raise BundleError(uri, f"{problem}, expected its own address, or https for tokens", "mend the registry's realm")


def _origin(url: Any) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


def _noted(hashed: Any, block: bytes) -> bytes:
    hashed.update(block)
    return block
