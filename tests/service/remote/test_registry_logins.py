"""service/remote/registry.py: who a registry may lead the login of docker to, and what is told where."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from demur.service.bundle import BundleError
from demur.service.remote.errors import UnreachableError
from demur.service.remote.pull import pull
from demur.service.remote.push import push
from tests.support.http_servers import Answering, answering

LOGIN = base64.b64encode(b"ann:hunter2").decode()
TOKEN = "t0ken"
SECRETS = LOGIN, TOKEN, "hunter2"


@dataclass
class World:
    """A registry at `own`, and another server at `other`, of another port; `told`: what each was told of logins.

    challenge, again: of the first request, and of those for what it has. location: where it leads uploads to.
    """

    own: str = ""
    other: str = ""
    challenge: str = ""
    again: str = ""
    location: str = ""
    redirect: str = ""
    told: dict[str, set[str]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"oci://{self.own.removeprefix('http://')}/a:1"


@contextmanager
def registry() -> Iterator[World]:
    world = World()

    class Asks(Answering):
        def do_GET(self) -> None:
            self.body()
            said = self.headers.get("Authorization", "")
            world.told.setdefault(f"http://{self.headers['Host']}", set()).add(said)
            if self.path.startswith("/token"):
                headers = {"Location": world.redirect}
                content = json.dumps({"token": TOKEN}).encode()
                self.answer(307, headers=headers) if world.redirect else self.answer(200, content)
            elif self.path == "/v2/":
                self.answer(401, headers={"WWW-Authenticate": world.challenge})
            elif not said:
                self.answer(401, headers={"WWW-Authenticate": world.again or world.challenge})
            elif self.command == "POST":
                self.answer(202, headers={"Location": world.location})
            else:
                self.answer(404)

        do_HEAD = do_POST = do_PUT = do_GET

    with ExitStack() as stack:
        world.own, world.other = (stack.enter_context(answering(Asks)) for _ in range(2))
        yield world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with registry() as found:
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        host = found.own.removeprefix("http://")
        (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": LOGIN}}}))
        yield found


def leaked(world: World) -> set[str]:
    """What anyone but the registry was told."""
    return {said for place, each in world.told.items() if place != world.own for said in each if said}


def test_the_registry_itself_may_give_tokens_for_the_password(world: World, folder: Path) -> None:
    world.challenge = f'Bearer realm="{world.own}/token"'
    with pytest.raises(BundleError, match="found no such artifact"):
        pull(world.uri, folder / "here")
    assert world.told[world.own] == {"", f"Basic {LOGIN}", f"Bearer {TOKEN}"}


REALMS = [
    "{other}/token",
    "http://localhost:{port}/token",
    "http://{host}@{elsewhere}/token",
    "http://ann:hunter2@{elsewhere}/token",
    "http://{elsewhere}\\\\@{host}/token",
    "http://{elsewhere}#@{host}/token",
    "HTTP://{elsewhere}/token",
    'x", realm="{other}/token',
]


@pytest.mark.parametrize("realm", REALMS)
@pytest.mark.parametrize("later", [False, True])
def test_a_realm_elsewhere_without_tls_is_not_told_the_password(
    realm: str, later: bool, world: World, folder: Path
) -> None:
    host, elsewhere = world.own.removeprefix("http://"), world.other.removeprefix("http://")
    named = realm.format(other=world.other, host=host, elsewhere=elsewhere, port=host.rpartition(":")[2])
    bad, good = f'Bearer realm="{named}"', f'Bearer realm="{world.own}/token"'
    world.challenge, world.again = (good, bad) if later else (bad, bad)
    with pytest.raises(BundleError) as caught:
        pull(world.uri, folder / "here")
    assert leaked(world) == set()
    assert not isinstance(caught.value, UnreachableError)
    assert not any(secret in str(caught.value) for secret in SECRETS)


def test_the_refusal_names_where_the_password_was_to_go(world: World, folder: Path) -> None:
    world.challenge = f'Bearer realm="{world.other}/token"'
    with pytest.raises(BundleError, match=f"the registry wants the login sent to {world.other}, expected its own"):
        pull(world.uri, folder / "here")


def test_a_realm_elsewhere_with_tls_is_asked(world: World, folder: Path) -> None:
    world.challenge = f'Bearer realm="{world.other.replace("http:", "https:")}/token"'  # which speaks none
    with pytest.raises(UnreachableError, match="SSL"):
        pull(world.uri, folder / "here")


def test_a_redirect_of_the_realm_is_not_told_the_password(world: World, folder: Path) -> None:
    world.challenge, world.redirect = f'Bearer realm="{world.own}/token"', f"{world.other}/tokens"
    with pytest.raises(BundleError):
        pull(world.uri, folder / "here")
    assert world.other in world.told
    assert leaked(world) == set()


@pytest.mark.parametrize("challenge", ["Basic", 'Bearer realm="{own}/token"'])
@pytest.mark.parametrize("place", ["{other}", "http://ann@{elsewhere}"])
def test_an_upload_is_not_led_elsewhere(challenge: str, place: str, world: World, folder: Path) -> None:
    world.challenge = challenge.format(own=world.own)
    world.location = f"{place.format(other=world.other, elsewhere=world.other.removeprefix('http://'))}/upload"
    with pytest.raises(BundleError, match="wants the login sent to http"):
        push(folder, world.uri)
    assert leaked(world) == set()


def test_without_a_login_nothing_is_told_and_a_realm_elsewhere_may_give_tokens(
    world: World, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    world.challenge = f'Bearer realm="{world.other}/token"'
    with pytest.raises(BundleError, match="found no such artifact"):
        pull(world.uri, folder / "here")
    assert leaked(world) == set()
