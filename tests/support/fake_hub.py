"""A Hugging Face Hub of one's own: `HF_ENDPOINT` leads here. It knows what huggingface_hub asks for models."""

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from tests.support.http_servers import Answering, answering

API = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)/(?P<what>revision|preupload|commit)/(?P<revision>[^/?]+)")
FILE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
Files = dict[str, bytes]


@dataclass
class FakeHub:
    """Repositories with the files of each commit, and the branches that lead to one; `requests` with their headers.

    `status`: what every request is refused with (0: none is); `longer`: files that have so many more bytes than said.
    """

    url: str = ""
    commits: dict[str, dict[str, Files]] = field(default_factory=dict)
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    status: int = 0
    longer: dict[str, int] = field(default_factory=dict)

    def commit(self, repository: str, files: Files, branch: str = "main") -> str:
        """Put these files, and no others, on the branch; returns the commit."""
        text = json.dumps([branch, *sorted((name, hashlib.sha1(data).hexdigest()) for name, data in files.items())])
        name = hashlib.sha1(text.encode()).hexdigest()
        self.commits.setdefault(repository, {})[name] = dict(files)
        self.branches.setdefault(repository, {})[branch] = name
        return name

    def at(self, repository: str, revision: str) -> tuple[str, Files] | None:
        """The commit that the revision leads to, and its files."""
        commits = self.commits.get(repository, {})
        commit = self.branches.get(repository, {}).get(revision, revision)
        return (commit, commits[commit]) if commit in commits else None


class _Handler(Answering):
    hub: FakeHub

    def do_GET(self) -> None:
        self.note()
        path = urlsplit(self.path).path
        if self.hub.status:
            self.answer(self.hub.status)
        elif (match := API.fullmatch(path)) and match["what"] == "revision":
            self.info(match["repository"], unquote(match["revision"]))
        elif match := FILE.fullmatch(path):
            self.file(match["repository"], unquote(match["revision"]), unquote(match["path"]))
        elif found := re.fullmatch("/api/models/([^/]+/[^/]+)", path):
            self.info(found[1], "main")
        else:
            self.answer(404)

    do_HEAD = do_GET

    def info(self, repository: str, revision: str) -> None:
        found = self.hub.at(repository, revision)
        if found is None:
            there = repository in self.hub.commits
            self.answer(404, headers={"X-Error-Code": "RevisionNotFound" if there else "RepoNotFound"})
            return
        commit, files = found
        siblings = [{"rfilename": name, "size": len(data), "blobId": commit} for name, data in files.items()]
        self.json({"id": repository, "modelId": repository, "sha": commit, "tags": [], "siblings": siblings})

    def file(self, repository: str, revision: str, path: str) -> None:
        found = self.hub.at(repository, revision)
        if found is None or path not in found[1]:
            self.answer(404, headers={"X-Error-Code": "EntryNotFound"})
            return
        commit, files = found
        tag = hashlib.sha1(files[path]).hexdigest()
        content = files[path] + b" " * self.hub.longer.get(path, 0)
        self.answer(200, content, {"ETag": f'"{tag}"', "X-Repo-Commit": commit})

    def do_POST(self) -> None:
        self.note()
        body, path = self.body(), urlsplit(self.path).path
        if self.hub.status:
            self.answer(self.hub.status)
        elif path == "/api/validate-yaml":
            metadata = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            self.json({"errors": [] if "library_name" in metadata else ["no library"], "warnings": []})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif (match := API.fullmatch(path)) and match["what"] == "preupload":
            named = [file["path"] for file in json.loads(body)["files"]]
            self.json({"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in named]})
        elif match and match["what"] == "commit":
            self.take(match["repository"], unquote(match["revision"]), body)
        else:
            self.answer(404)

    @property
    def url(self) -> str:
        """By which the client has come: there may be a proxy between."""
        return f"http://{self.headers['Host']}"

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if name in self.hub.commits:
            said = {"error": "You already created this model repo", "url": f"{self.url}/{name}"}
            self.answer(409, json.dumps(said).encode())
            return
        self.hub.private[name] = asked.get("private") or asked.get("visibility") == "private"
        self.hub.commit(name, {".gitattributes": b"*.onnx filter=lfs\n"})
        self.json({"url": f"{self.url}/{name}"})

    def take(self, repository: str, branch: str, body: bytes) -> None:
        found = self.hub.at(repository, branch)
        assert found is not None
        files = dict(found[1])
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        commit = self.hub.commit(repository, files, branch)
        self.json({"commitUrl": f"{self.url}/{repository}/commit/{commit}", "commitOid": commit, "success": True})

    def json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def note(self) -> None:
        self.hub.requests.append((f"{self.command} {self.path}", {name.lower(): v for name, v in self.headers.items()}))


@contextlib.contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A running hub without repositories."""
    hub = FakeHub()
    with answering(type("Handler", (_Handler,), {"hub": hub})) as url:
        hub.url = url
        yield hub
