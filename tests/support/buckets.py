"""A store of objects that S3, Google Cloud Storage and Azure clients take for theirs: they read and write one object by
its path alike."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from tests.support.http_servers import Answering, answering

DELETED = b"<Deleted><Key>%s</Key></Deleted>".__mod__


@dataclass
class Buckets:
    """The objects by their paths, and what was asked; `status`: what every request is refused with (0: none is)."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 0

    def environment(self, scheme: str) -> dict[str, str]:
        """What an operator sets so that the clients of this cloud come here."""
        account = {
            "gcs_base_url": self.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {
            "s3": {
                "AWS_ENDPOINT_URL": self.url,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "eu-west-1",
            },
            "gs": {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)},
            "az": {
                "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
                "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
                "AZURE_STORAGE_ENDPOINT": f"{self.url}/devstoreaccount1",
            },
        }[scheme]


class _Handler(Answering):
    store: Buckets

    def do_GET(self) -> None:
        path = self.noted()
        content = self.store.objects.get(path)
        if self.store.status or content is None:
            self.answer(self.store.status or 404)
            return
        tag = hashlib.sha256(content).hexdigest()
        self.answer(200, content, {"ETag": f'"{tag}"', "Last-Modified": formatdate(0, usegmt=True)})

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        path, content = self.noted(), self.body()
        if not self.store.status:
            self.store.objects[path] = content
        self.answer(self.store.status or 201, b"", {"ETag": '"0"', "Last-Modified": formatdate(0, usegmt=True)})

    def do_DELETE(self) -> None:
        self.store.objects.pop(self.noted(), None)
        self.answer(self.store.status or 204)

    def do_POST(self) -> None:
        """Several objects are deleted at once: by S3 in XML, by Azure in parts that are requests of their own."""
        path, body = self.noted(), self.body()
        if keys := re.findall(b"<Key>(.*?)</Key>", body):
            for key in keys:
                self.store.objects.pop(f"{path}/{key.decode()}", None)
            self.answer(200, b"<DeleteResult>" + b"".join(map(DELETED, keys)) + b"</DeleteResult>")
            return
        parts = re.findall(rb"DELETE (\S+) HTTP", body)
        for part in parts:
            self.store.objects.pop(urlsplit(unquote(part.decode())).path, None)
        answers = [f"--b\r\nContent-ID: {i}\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n" for i in range(len(parts))]
        self.answer(202, ("".join(answers) + "--b--").encode(), {"Content-Type": "multipart/mixed; boundary=b"})

    def noted(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.store.asked.append(f"{self.command} {path}")
        return path


@contextlib.contextmanager
def buckets() -> Iterator[Buckets]:
    """A running store."""
    store = Buckets()
    with answering(type("Handler", (_Handler,), {"store": store})) as url:
        store.url = url
        yield store
