"""Generates the OpenAPI document of an app from its endpoints and their msgspec structs.

It adds what the kit itself sends: 400 for endpoints with a query or a body, 413 and 415 for those
with a body, 401 for those with security that do not declare one, and the headers of each response.
The operation's ID is the name of the handler after the name of the backend, so that generated
clients have functions such as `cricket_list_matches`.
"""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import msgspec

from tally.errors import (
    Invalid,
    RateLimited,
    TallyError,
    TooLarge,
    Unauthenticated,
    UnsupportedMedia,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import PROBLEM_JSON, ProblemBody, to_problem
from tally.kit.json_schemas import ComponentSchemas

Json = dict[str, Any]

MISSING_FIELD: Final = Invalid("name is missing", code="missing_field", field="name")
TOO_LARGE: Final = TooLarge("The body must be at most 1048576 bytes", limit=1048576)
NOT_JSON: Final = UnsupportedMedia(
    "The content type must be application/json", field="Content-Type"
)
NOT_A_FILE: Final = UnsupportedMedia(
    "The content type must be application/octet-stream", field="Content-Type"
)
NO_CREDENTIAL: Final = Unauthenticated("Missing or invalid credential")
EXAMPLE_REQUEST_ID: Final = "0198c1f2-7c55-7b1e-9a40-5d2f6c3e8b17"
HEADER_REFERENCE: Final = "#/components/headers/"
# Relative to the address of the document, so that clients call the server they read it from.
SERVERS: Final = [{"url": "/", "description": "This instance"}]
LICENSE: Final = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
RATE_LIMIT_HEADERS: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")

ANY_STRING: Final[Json] = {"type": "string"}
BINARY: Final[Json] = {"type": "string", "format": "binary"}
HEADERS: Final[Json] = {
    "X-Request-Id": {
        "description": "Identifies the request in the logs.",
        "required": True,
        "schema": {"type": "string", "examples": [EXAMPLE_REQUEST_ID]},
    },
    "Location": {
        "description": "The address to continue at.",
        "required": True,
        "schema": {"type": "string"},
    },
    "WWW-Authenticate": {
        "description": "The kind of credential that is missing.",
        "required": True,
        "schema": {"type": "string", "examples": ["Bearer"]},
    },
    "Retry-After": {
        "description": "Seconds after which a retry can succeed.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1, "examples": [1]},
    },
    "RateLimit-Limit": {
        "description": "Requests that the rate limit allows.",
        "schema": {"type": "integer", "minimum": 1, "examples": [60]},
    },
    "RateLimit-Remaining": {
        "description": "Requests that remain.",
        "schema": {"type": "integer", "minimum": 0, "examples": [59]},
    },
    "RateLimit-Reset": {
        "description": "Seconds until the quota is complete again.",
        "schema": {"type": "integer", "minimum": 0, "examples": [1]},
    },
}
HEADERS_BY_STATUS: Final[Mapping[int, Sequence[str]]] = {
    302: ["Location"],
    303: ["Location"],
    401: ["WWW-Authenticate"],
    429: ["Retry-After"],
    503: ["Retry-After"],
}

_parameter = re.compile(r"{(\w+)(?::\w+)?}")


def document(title: str, version: str, description: str, apis: Sequence[Api]) -> Json:
    """Return the document for `apis`, each under its prefix and with a tag."""
    endpoints = [endpoint for api in apis for endpoint in _documented(api)]
    queries = {endpoint.query for endpoint in endpoints if endpoint.query is not None}
    schemas = ComponentSchemas([kind for api in apis for kind in _kinds(api)], queries)
    paths: dict[str, Json] = {}
    for api in apis:
        for endpoint in _documented(api):
            path = _parameter.sub(r"{\1}", api.prefix + endpoint.path)
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(api, endpoint, schemas)
    info = {"title": title, "version": version, "description": description, "license": LICENSE}
    return {
        "openapi": "3.1.0",
        "info": info,
        "servers": SERVERS,
        "tags": [{"name": api.title, "description": api.description} for api in apis],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "headers": HEADERS,
            "securitySchemes": dict(
                chain.from_iterable(api.security_schemes.items() for api in apis)
            ),
        },
    }


def _documented(api: Api) -> list[Endpoint]:
    return [endpoint for endpoint in api.endpoints if endpoint.is_documented]


def _kinds(api: Api) -> list[Any]:
    endpoints = _documented(api)
    bodies = [
        kind
        for endpoint in endpoints
        for kind in (endpoint.request, endpoint.response)
        if kind is not None
    ]
    others = [
        type(example) for endpoint in endpoints for example in endpoint.other_responses.values()
    ]
    return [*bodies, *others, *api.path_types.values(), ProblemBody]


def _operation(api: Api, endpoint: Endpoint, schemas: ComponentSchemas) -> Json:
    operation_object: Json = {
        "tags": [api.title],
        "summary": endpoint.summary,
        "operationId": _operation_id(api, endpoint),
        "parameters": [
            *_path_parameters(api, endpoint, schemas),
            *_query_parameters(endpoint.query, schemas),
        ],
        "responses": {
            str(endpoint.status): _success(endpoint, schemas),
            **{
                str(status): _other(endpoint, status, example, schemas)
                for status, example in endpoint.other_responses.items()
            },
            **_errors(endpoint, schemas),
        },
    }
    if endpoint.description:
        operation_object["description"] = endpoint.description
    if endpoint.security:
        operation_object["security"] = [{name: []} for name in endpoint.security]
    if endpoint.request is not None:
        content = _content(
            "application/json", schemas.schema(endpoint.request), endpoint.request_example
        )
        operation_object["requestBody"] = {"required": True, "content": content}
    elif endpoint.file_types:
        media = {"schema": BINARY, "example": endpoint.request_example}
        # Generators of clients know only the first type.
        content = {endpoint.file_types[0]: media}
        operation_object["requestBody"] = {"required": True, "content": content}
    return operation_object


def _operation_id(api: Api, endpoint: Endpoint) -> str:
    name = endpoint.handler.__name__
    return f"{api.name}_{name}" if api.name else name


def _path_parameters(api: Api, endpoint: Endpoint, schemas: ComponentSchemas) -> list[Json]:
    parameters = []
    for name in _parameter.findall(endpoint.path):
        schema = schemas.schema(api.path_types[name]) if name in api.path_types else ANY_STRING
        parameter = {"name": name, "in": "path", "required": True, "schema": schema}
        if "examples" in schema:
            # The explorer takes the initial value of its form from here, not from the schema.
            parameter["example"] = schema["examples"][0]
        parameters.append(parameter)
    return parameters


def _query_parameters(query: Any, schemas: ComponentSchemas) -> list[Json]:
    if query is None:
        return []
    fields = schemas.query(query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in fields.get("required", ()),
            "schema": schema,
        }
        for name, schema in fields["properties"].items()
    ]


def _success(endpoint: Endpoint, schemas: ComponentSchemas) -> Json:
    response = _response(endpoint, endpoint.status)
    if endpoint.response is not None:
        schema = schemas.schema(endpoint.response)
        response["content"] = _content(endpoint.media_type, schema, endpoint.response_example)
    elif endpoint.media_type != "application/json":
        response["content"] = _content(
            endpoint.media_type, {"type": "string"}, endpoint.response_example
        )
    for media_type in endpoint.other_media_types:
        response["content"] |= _content(media_type, {"type": "string"}, None)
    return response


def _other(endpoint: Endpoint, status: int, example: object, schemas: ComponentSchemas) -> Json:
    content = _content("application/json", schemas.schema(type(example)), example)
    return _response(endpoint, status) | {"content": content}


def _response(endpoint: Endpoint, status: int) -> Json:
    names = ["X-Request-Id", *HEADERS_BY_STATUS.get(status, ())]
    if any(error.code == RateLimited.default_code for error in endpoint.errors):
        names += RATE_LIMIT_HEADERS
    headers = {name: {"$ref": HEADER_REFERENCE + name} for name in names}
    return {"description": HTTPStatus(status).phrase, "headers": headers}


def _errors(endpoint: Endpoint, schemas: ComponentSchemas) -> Json:
    by_status: dict[str, Json] = {}
    for error in [*endpoint.errors, *_implied(endpoint)]:
        problem = to_problem(error)
        if problem is None:
            raise ValueError(
                f"{endpoint.method} {endpoint.path} declares {error!r}, which has no status"
            )
        media = {"schema": schemas.schema(ProblemBody), "examples": {}}
        response = by_status.setdefault(
            str(problem.status),
            _response(endpoint, problem.status) | {"content": {PROBLEM_JSON: media}},
        )
        response["content"][PROBLEM_JSON]["examples"][problem.code] = {
            "summary": problem.message,
            "value": msgspec.to_builtins(problem.body(EXAMPLE_REQUEST_ID)),
        }
    return dict(sorted(by_status.items()))


def _implied(endpoint: Endpoint) -> list[TallyError]:
    implied: list[TallyError] = []
    if endpoint.request is not None:
        implied += [MISSING_FIELD, TOO_LARGE, NOT_JSON]
    elif endpoint.file_types:
        implied += [MISSING_FIELD, NOT_A_FILE]
    elif endpoint.query is not None:
        implied.append(MISSING_FIELD)
    if endpoint.security and not any(
        isinstance(error, Unauthenticated) for error in endpoint.errors
    ):
        implied.append(NO_CREDENTIAL)
    return implied


def _content(media_type: str, schema: Json, example: object) -> Json:
    media: Json = {"schema": schema}
    if example is not None:
        media["example"] = msgspec.to_builtins(example)
    return {media_type: media}
