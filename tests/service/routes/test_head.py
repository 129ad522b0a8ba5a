"""HEAD wherever GET answers: proxies and monitors check pages with it."""

import contextlib
import http.client

from fastapi.routing import APIRoute

from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic
from tests.support.client import serving
from tests.support.server import running


def test_head_answers_as_get_does(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as client:
        routes = [
            route for route in client.app.routes if isinstance(route, APIRoute) and "GET" in (route.methods or ())
        ]
        model = classification.manifest
        paths = {route.path.format(name=model.name, version=model.version, file="main.js") for route in routes}
        assert {"/model", "/models", "/v2", f"/v2/models/{model.name}"} <= paths
        for path in sorted(paths):
            found, expected = client.request("HEAD", path), client.get(path)
            assert found.status_code == expected.status_code == 200, path
            assert found.headers.get("content-type") == expected.headers.get("content-type"), path
        for path in ("/models/none", "/v2/models/none"):
            assert client.request("HEAD", path).status_code == 404
        assert all("head" not in methods for methods in client.get("/openapi.json").json()["paths"].values())


def test_head_has_no_body(classification: Synthetic) -> None:
    with running(classification.path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        with contextlib.closing(connection):
            for path in ("/model", "/models", "/v2"):  # over one connection, which a body would confuse
                connection.request("HEAD", path)
                response = connection.getresponse()
                assert (response.status, response.read()) == (200, b"")
                assert int(response.headers["content-length"]) > 0
