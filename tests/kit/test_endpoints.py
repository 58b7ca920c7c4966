"""Declared endpoints are served and documented."""

import re
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response

from tally.errors import Conflict, NotFound, RateLimited, TallyError, Unavailable
from tally.kit.body import StrictStruct, read_json
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import Json
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
    """The backend handles it or returns a 404."""
    async with serving(make_app(API)) as url:
        response = await client.get(f"{url}/things{path}").build().send()
        described = await response.json()
    if path == "/things/a%0Ab":
        assert (response.status, described["thing_id"]) == (200, "a\nb")
    else:
        assert (response.status, described["code"]) == (404, "not_found")


def test_a_duplicate_endpoint_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"GET /devices/things/\{thing_id\} is declared twice"):
        make_app(make_api(SHOW, SHOW))


def test_the_document_contains_every_endpoint(described: dict[str, Any]) -> None:
    paths = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert paths == {
        ("/things/things/{thing_id}", "post"),
        ("/things/things/{thing_id}", "get"),
        ("/things/things.csv", "get"),
    }
    assert described["openapi"] == "3.1.0"
    assert described["info"] == {
        "title": "Tally",
        "version": "1.2",
        "description": "All of it.",
        "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    }
    assert [server["url"] for server in described["servers"]] == ["/"]


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
    number = Annotated[str, msgspec.Meta(pattern="^[0-9]+$", examples=["7"])]
    numbered = replace(
        EXPORT,
        path="/things/{thing_id}.csv",
        other_media_types=("text/plain",),
    )
    api = replace(API, endpoints=(numbered,), path_types={"thing_id": number})
    operation = document("Tally", "1.2", "", [api])["paths"]["/things/things/{thing_id}.csv"]["get"]
    schema = {"type": "string", "pattern": "^[0-9]+$", "examples": ["7"]}
    assert operation["parameters"][0]["schema"] == schema
    assert operation["parameters"][0]["example"] == "7"
    assert set(operation["responses"]["200"]["content"]) == {"text/csv", "text/plain"}


def test_the_document_contains_every_error(described: dict[str, Any]) -> None:
    """Both declared errors and those of the kit."""
    responses = described["paths"]["/things/things/{thing_id}"]["post"]["responses"]
    assert set(responses) == {"201", "400", "401", "404", "409", "413", "415"}
    missing = responses["404"]["content"]["application/problem+json"]
    assert missing["schema"] == {"$ref": "#/components/schemas/ProblemBody"}
    example = missing["examples"]["thing_not_found"]["value"]
    assert example.pop("requestId")
    assert example == {
        "type": "/docs/errors#thing_not_found",
        "title": "Not Found",
        "status": 404,
        "detail": "No thing 1",
        "code": "thing_not_found",
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
        {"Colour", "Painted", "ProblemBody"}
        <= set(references)
        <= set(described["components"]["schemas"])
    )


def test_operation_ids_are_the_names_of_the_handlers(described: dict[str, Any]) -> None:
    ids = {
        operation["operationId"]
        for methods in described["paths"].values()
        for operation in methods.values()
    }
    assert ids == {"things_paint", "things_show", "things_export"}


def test_a_page_for_people_is_not_in_the_document() -> None:
    api = replace(API, endpoints=(SHOW, replace(EXPORT, is_documented=False)))
    assert set(document("Tally", "1", "", [api])["paths"]) == {"/things/things/{thing_id}"}


def test_the_document_contains_the_headers_of_each_response() -> None:
    limited = replace(
        SHOW,
        errors=(RateLimited("Slower", retry_after=1), Unavailable("Down")),
        security=("key",),
    )
    described = document("Tally", "1", "", [replace(API, endpoints=(limited,))])
    responses = described["paths"]["/things/things/{thing_id}"]["get"]["responses"]
    always = {"X-Request-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
    assert {status: set(response["headers"]) for status, response in responses.items()} == {
        "200": always,
        "400": always,
        "401": always | {"WWW-Authenticate"},
        "429": always | {"Retry-After"},
        "503": always | {"Retry-After"},
    }
    assert always < set(described["components"]["headers"])


class Order(msgspec.Struct):
    """A body with optional fields."""

    facts: dict[str, Any]
    count: int = 3
    note: str | None = None


def test_fields_with_defaults_are_optional_and_objects_are_open() -> None:
    """openapi-typescript requires a field with `default`, and allows no member without schema."""
    api = replace(API, endpoints=(replace(PAINT, request=Order, request_example=None),))
    schema = document("Tally", "1", "", [api])["components"]["schemas"]["Order"]
    assert schema["required"] == ["facts"]
    assert schema["properties"] == {
        "facts": {"type": "object", "additionalProperties": True},
        "count": {"type": "integer", "description": "Default: 3"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }


def test_a_query_is_not_a_component(described: dict[str, Any]) -> None:
    assert "Page" not in described["components"]["schemas"]


def test_an_error_without_a_status_cannot_be_declared() -> None:
    api = make_api(Endpoint("GET", "/", show, "A thing", errors=(TallyError("What?"),)))
    with pytest.raises(ValueError, match="has no status"):
        document("Tally", "1", "", [api])
