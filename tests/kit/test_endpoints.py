"""Declared endpoints are served and documented."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Annotated, Any

import msgspec
import pytest
from pyreqwest.client import Client
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import Conflict, NotFound, TallyError
from tally.kit.body import StrictStruct, read_json
from tally.kit.docs import render_docs
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import ErrorFormat, FlatError, Json, NestedError
from tally.kit.openapi import document
from tally.kit.server import serving
from tests.kit.serving import make_api, make_app


class Colour(StrictStruct, frozen=True):
    red: int
    name: str = "nameless"


class Painted(msgspec.Struct, frozen=True):
    """A painted thing."""

    thing_id: str
    colour: Colour | None = None


class Page(StrictStruct, frozen=True):
    limit: int
    cursor: str | None = None


async def paint(request: Request) -> Response:
    return Json(Painted(request.path_params["thing_id"], await read_json(request, Colour)), 201)


async def show(request: Request) -> Response:
    return Json(Painted(request.path_params["thing_id"]))


async def export(_: Request) -> Response:
    return Response("a,b\n", media_type="text/csv")


PAINT = Endpoint(
    "POST",
    "/things/{thing_id}",
    paint,
    "Paint <a> thing",
    description="Twice is as good as once.",
    request=Colour,
    request_example=Colour(255, "it's red"),
    response=Painted,
    response_example=Painted("1", Colour(255)),
    status=201,
    errors=(NotFound("No thing 1", code="thing_not_found"), Conflict("Wet", code="wet")),
    security=("key",),
)
SHOW = Endpoint("GET", "/things/{thing_id}", show, "A thing", response=Painted, query=Page)
EXPORT = Endpoint("GET", "/things.csv", export, "All things", media_type="text/csv")
API = Api(
    name="things",
    description="Things & colours.",
    endpoints=(PAINT, SHOW, EXPORT),
    error_format=ErrorFormat(FlatError, upper_case=True),
    security_schemes={"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
)


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(document("Tally", "1.2", "All of it.", [API, make_api(name="")]))
    )
    return decoded


async def test_each_method_of_a_path_is_served(client: Client) -> None:
    async with serving(make_app(API)) as url:
        painted = await client.post(f"{url}/things/things/7").body_json({"red": 1}).build().send()
        assert painted.status == 201
        assert await painted.json() == {"thing_id": "7", "colour": {"red": 1, "name": "nameless"}}
        shown = await client.get(f"{url}/things/things/7").build().send()
        assert await shown.json() == {"thing_id": "7", "colour": None}
        head = await client.head(f"{url}/things/things/7").build().send()
        assert (head.status, await head.text()) == (200, "")
        rejected = await client.delete(f"{url}/things/things/7").build().send()
        assert (rejected.status, rejected.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("path", ["/things/a%0Ab", "/%0A", "/no/such%0Apath", "/things%0D%0A"])
async def test_a_path_with_a_newline_is_routed_to_the_backend(client: Client, path: str) -> None:
    """The backend handles it or returns a 404 in its own format."""
    async with serving(make_app(API)) as url:
        response = await client.get(f"{url}/things{path}").build().send()
        described = await response.json()
    if path == "/things/a%0Ab":
        assert (response.status, described["thing_id"]) == (200, "a\nb")
    else:
        assert (response.status, described["error"]) == (404, "NOT_FOUND")


def test_a_duplicate_endpoint_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"GET /things/\{thing_id\} is declared twice"):
        make_api(SHOW, SHOW).mount()


async def test_error_responses_pass_through_middleware(client: Client) -> None:
    """A browser can read an error only with CORS headers."""
    cors = Middleware(
        CORSMiddleware, allow_origins=["https://console.test"], expose_headers=["X-Request-Id"]
    )
    api = Api(name="things", description="", endpoints=(SHOW,), middleware=(cors,))
    async with serving(make_app(api)) as url:
        response = (
            await client.get(f"{url}/things/nothing")
            .header("Origin", "https://console.test")
            .build()
            .send()
        )
        assert response.status == 404
        assert response.headers["access-control-allow-origin"] == "https://console.test"


def test_the_document_contains_every_endpoint(described: dict[str, Any]) -> None:
    paths = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert paths == {
        ("/things/things/{thing_id}", "post"),
        ("/things/things/{thing_id}", "get"),
        ("/things/things.csv", "get"),
    }
    assert described["openapi"] == "3.1.0"
    assert described["info"] == {"title": "Tally", "version": "1.2", "description": "All of it."}


def test_the_document_contains_bodies_parameters_and_security(described: dict[str, Any]) -> None:
    painted = described["paths"]["/things/things/{thing_id}"]["post"]
    body = painted["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Colour"}
    assert body["example"] == {"red": 255, "name": "it's red"}
    assert painted["responses"]["201"]["content"]["application/json"]["example"]["thing_id"] == "1"
    assert painted["security"] == [{"key": []}]
    assert described["components"]["securitySchemes"]["key"]["name"] == "X-API-Key"
    shown = described["paths"]["/things/things/{thing_id}"]["get"]["parameters"]
    assert [(entry["name"], entry["in"], entry["required"]) for entry in shown] == [
        ("thing_id", "path", True),
        ("limit", "query", True),
        ("cursor", "query", False),
    ]


def test_the_document_contains_path_types_and_media_types() -> None:
    number = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[0-9]+$"})]
    numbered = replace(
        EXPORT,
        path="/things/{thing_id}.csv",
        path_types={"thing_id": number},
        other_media_types=("text/plain",),
    )
    openapi_document = document("Tally", "1.2", "", [replace(API, endpoints=(numbered,))])
    operation = openapi_document["paths"]["/things/things/{thing_id}.csv"]["get"]
    assert operation["parameters"][0]["schema"] == {"type": "string", "pattern": "^[0-9]+$"}
    assert set(operation["responses"]["200"]["content"]) == {"text/csv", "text/plain"}


def test_the_document_contains_every_error_in_its_format(described: dict[str, Any]) -> None:
    """Both declared errors and those of the kit."""
    responses = described["paths"]["/things/things/{thing_id}"]["post"]["responses"]
    assert set(responses) == {"201", "400", "401", "404", "409", "413", "415"}
    missing = responses["404"]["content"]["application/json"]
    assert missing["schema"] == {"$ref": "#/components/schemas/FlatError"}
    assert missing["examples"]["thing_not_found"]["value"] == {
        "error": "THING_NOT_FOUND",
        "message": "No thing 1",
    }
    assert set(described["paths"]["/things/things/{thing_id}"]["get"]["responses"]) == {
        "200",
        "400",
    }


def test_every_reference_in_the_document_resolves(described: dict[str, Any]) -> None:
    references = re.findall(
        r'"\$ref":"#/components/schemas/(\w+)"', msgspec.json.encode(described).decode()
    )
    assert (
        {"Colour", "Painted", "FlatError"}
        <= set(references)
        <= set(described["components"]["schemas"])
    )
    assert NestedError.__name__ in described["components"]["schemas"]


def test_operation_ids_are_unique(described: dict[str, Any]) -> None:
    ids = [
        operation["operationId"]
        for methods in described["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(ids)) == len(ids) == 3


def test_an_error_without_a_status_cannot_be_declared() -> None:
    api = make_api(Endpoint("GET", "/", show, "A thing", errors=(TallyError("What?"),)))
    with pytest.raises(ValueError, match="has no status"):
        document("Tally", "1", "", [api])


class Reader(HTMLParser):
    """Collects the text, IDs and links of a page, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def reader(described: dict[str, Any]) -> Reader:
    reader = Reader()
    reader.feed(render_docs(described))
    reader.close()
    return reader


def test_the_page_is_well_formed_and_complete(reader: Reader) -> None:
    assert reader.open == []
    for words in (
        "Tally",
        "/things/things.csv",
        "Things & colours.",
        "Twice is as good as once.",
        "THING_NOT_FOUND",
    ):
        assert words in reader.text
    assert "A painted thing." in reader.text


def test_text_from_the_document_is_escaped(reader: Reader) -> None:
    """A summary cannot add elements."""
    assert "Paint <a> thing" in reader.text


def test_the_page_is_self_contained(reader: Reader) -> None:
    """It has no scripts, images or stylesheets, and links only to itself and the document."""
    inside = [link[1:] for link in reader.links if link.startswith("#")]
    assert set(reader.links) - {f"#{name}" for name in inside} == {"openapi.json"}
    assert set(inside) <= set(reader.ids)
    assert "<script" not in render_docs(
        {
            "info": {"title": "", "version": "", "description": "<script>"},
            "tags": [],
            "paths": {},
            "components": {"schemas": {}},
        }
    )


def test_the_page_contains_a_curl_command(reader: Reader) -> None:
    """The example body is quoted for the shell."""
    assert (
        """curl -X POST "$TALLY/things/things/{thing_id}" -H 'content-type: application/json'"""
        in reader.text
    )
    assert """'{"red": 255, "name": "it'"'"'s red"}'""" in reader.text
