"""What is declared is served, and is what the documents say."""

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
from tests.kit.serving import api_of, app_of


class Colour(StrictStruct, frozen=True):
    red: int
    name: str = "nameless"


class Painted(msgspec.Struct, frozen=True):
    """What was painted."""

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
def told() -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(document("Tally", "1.2", "All of it.", [API, api_of(name="")]))
    )
    return made


async def test_each_method_of_a_path_is_served(client: Client) -> None:
    async with serving(app_of(API)) as url:
        painted = await client.post(f"{url}/things/things/7").body_json({"red": 1}).build().send()
        assert painted.status == 201
        assert await painted.json() == {"thing_id": "7", "colour": {"red": 1, "name": "nameless"}}
        shown = await client.get(f"{url}/things/things/7").build().send()
        assert await shown.json() == {"thing_id": "7", "colour": None}
        head = await client.head(f"{url}/things/things/7").build().send()
        assert (head.status, await head.text()) == (200, "")
        refused = await client.delete(f"{url}/things/things/7").build().send()
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("path", ["/things/a%0Ab", "/%0A", "/no/such%0Apath", "/things%0D%0A"])
async def test_a_line_end_in_a_path_is_answered_by_the_backend(client: Client, path: str) -> None:
    """In its own shape, or as the text that it is: never by whatever stands behind all backends."""
    async with serving(app_of(API)) as url:
        response = await client.get(f"{url}/things{path}").build().send()
        told = await response.json()
    if path == "/things/a%0Ab":
        assert (response.status, told["thing_id"]) == (200, "a\nb")
    else:
        assert (response.status, told["error"]) == (404, "NOT_FOUND")


def test_an_operation_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"GET /things/\{thing_id\} is declared twice"):
        api_of(SHOW, SHOW).mount()


async def test_middleware_of_an_api_sees_its_errors_too(client: Client) -> None:
    """A browser can read an error only if it has the CORS headers as well."""
    cors = Middleware(
        CORSMiddleware, allow_origins=["https://console.test"], expose_headers=["X-Request-Id"]
    )
    api = Api(name="things", description="", endpoints=(SHOW,), middleware=(cors,))
    async with serving(app_of(api)) as url:
        response = (
            await client.get(f"{url}/things/nothing")
            .header("Origin", "https://console.test")
            .build()
            .send()
        )
        assert response.status == 404
        assert response.headers["access-control-allow-origin"] == "https://console.test"


def test_the_document_has_every_operation(told: dict[str, Any]) -> None:
    paths = {(path, method) for path, methods in told["paths"].items() for method in methods}
    assert paths == {
        ("/things/things/{thing_id}", "post"),
        ("/things/things/{thing_id}", "get"),
        ("/things/things.csv", "get"),
    }
    assert told["openapi"] == "3.1.0"
    assert told["info"] == {"title": "Tally", "version": "1.2", "description": "All of it."}


def test_the_document_has_bodies_parameters_and_security(told: dict[str, Any]) -> None:
    painted = told["paths"]["/things/things/{thing_id}"]["post"]
    body = painted["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Colour"}
    assert body["example"] == {"red": 255, "name": "it's red"}
    assert painted["responses"]["201"]["content"]["application/json"]["example"]["thing_id"] == "1"
    assert painted["security"] == [{"key": []}]
    assert told["components"]["securitySchemes"]["key"]["name"] == "X-API-Key"
    shown = told["paths"]["/things/things/{thing_id}"]["get"]["parameters"]
    assert [(entry["name"], entry["in"], entry["required"]) for entry in shown] == [
        ("thing_id", "path", True),
        ("limit", "query", True),
        ("cursor", "query", False),
    ]


def test_the_document_tells_what_a_path_parameter_is_and_which_types_an_answer_may_have() -> None:
    number = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[0-9]+$"})]
    numbered = replace(
        EXPORT,
        path="/things/{thing_id}.csv",
        path_types={"thing_id": number},
        other_media_types=("text/plain",),
    )
    made = document("Tally", "1.2", "", [replace(API, endpoints=(numbered,))])
    operation = made["paths"]["/things/things/{thing_id}.csv"]["get"]
    assert operation["parameters"][0]["schema"] == {"type": "string", "pattern": "^[0-9]+$"}
    assert set(operation["responses"]["200"]["content"]) == {"text/csv", "text/plain"}


def test_the_document_has_every_error_as_it_looks_on_the_wire(told: dict[str, Any]) -> None:
    """Those declared, and those that the kit itself answers with."""
    responses = told["paths"]["/things/things/{thing_id}"]["post"]["responses"]
    assert set(responses) == {"201", "400", "401", "404", "409", "413", "415"}
    missing = responses["404"]["content"]["application/json"]
    assert missing["schema"] == {"$ref": "#/components/schemas/FlatError"}
    assert missing["examples"]["thing_not_found"]["value"] == {
        "error": "THING_NOT_FOUND",
        "message": "No thing 1",
    }
    assert set(told["paths"]["/things/things/{thing_id}"]["get"]["responses"]) == {"200", "400"}


def test_every_reference_in_the_document_leads_somewhere(told: dict[str, Any]) -> None:
    references = re.findall(
        r'"\$ref":"#/components/schemas/(\w+)"', msgspec.json.encode(told).decode()
    )
    assert (
        {"Colour", "Painted", "FlatError"} <= set(references) <= set(told["components"]["schemas"])
    )
    assert NestedError.__name__ in told["components"]["schemas"]


def test_every_operation_has_an_id_of_its_own(told: dict[str, Any]) -> None:
    ids = [
        operation["operationId"]
        for methods in told["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(ids)) == len(ids) == 3


def test_an_error_without_a_status_cannot_be_declared() -> None:
    api = api_of(Endpoint("GET", "/", show, "A thing", errors=(TallyError("What?"),)))
    with pytest.raises(ValueError, match="has no status"):
        document("Tally", "1", "", [api])


class Reader(HTMLParser):
    """Collects a page's text, its ids and where its links lead, and holds that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        self.ids += [held["id"] or ""] if "id" in held else []
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def reader(told: dict[str, Any]) -> Reader:
    reader = Reader()
    reader.feed(render_docs(told))
    reader.close()
    return reader


def test_the_page_is_whole_and_tells_everything(reader: Reader) -> None:
    assert reader.open == []
    for words in (
        "Tally",
        "/things/things.csv",
        "Things & colours.",
        "Twice is as good as once.",
        "THING_NOT_FOUND",
    ):
        assert words in reader.text
    assert "What was painted." in reader.text


def test_what_the_document_holds_is_text_on_the_page(reader: Reader) -> None:
    """Not markup: nothing in a summary becomes an element."""
    assert "Paint <a> thing" in reader.text


def test_the_page_needs_nothing_from_anywhere(reader: Reader) -> None:
    """No script, no picture, no style sheet: links within the page, and one to the document beside it."""
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


def test_the_page_shows_a_command_that_can_be_pasted(reader: Reader) -> None:
    """With the example as the body, quoted for the shell."""
    assert (
        """curl -X POST "$TALLY/things/things/{thing_id}" -H 'content-type: application/json'"""
        in reader.text
    )
    assert """'{"red": 255, "name": "it'"'"'s red"}'""" in reader.text
