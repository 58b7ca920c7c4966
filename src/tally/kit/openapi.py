"""Generates the OpenAPI document of an app from its endpoints and their msgspec structs.

It adds the responses that the kit itself sends: 400 for endpoints with a query or a body, 413 and
415 for those with a body, and 401 for those with security that do not declare one.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import msgspec

from tally.errors import Invalid, TallyError, TooLarge, Unauthenticated, UnsupportedMedia
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import to_problem

Json = dict[str, Any]

MISSING_FIELD: Final = Invalid("name is missing", code="missing_field", field="name")
TOO_LARGE: Final = TooLarge("The body must be at most 1048576 bytes", limit=1048576)
NOT_JSON: Final = UnsupportedMedia(
    "The content type must be application/json", field="Content-Type"
)
NO_CREDENTIAL: Final = Unauthenticated("Missing or invalid credential")
REFERENCE: Final = "#/components/schemas/"
REQUEST_ID: Final = {
    "X-Request-Id": {
        "description": "Identifies the request in the logs.",
        "schema": {"type": "string"},
    },
}

_parameter = re.compile(r"{(\w+)(?::\w+)?}")


class _Schemas:
    """The JSON schemas of all referenced structs, each defined once."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        schemas, self.components = msgspec.json.schema_components(
            kinds, ref_template=REFERENCE + "{name}"
        )
        self._by_kind = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}

    def schema(self, kind: Any) -> Json:
        return self._by_kind[id(kind)]

    def fields(self, kind: Any) -> Json:
        fields: Json = self.components[self.schema(kind)["$ref"].removeprefix(REFERENCE)]
        return fields


def document(title: str, version: str, description: str, apis: Sequence[Api]) -> Json:
    """Return the document for `apis`, each under its prefix and with a tag."""
    schemas = _Schemas([kind for api in apis for kind in _kinds(api)])
    paths: dict[str, Json] = {}
    for api in apis:
        for endpoint in api.endpoints:
            path = _parameter.sub(r"{\1}", api.prefix + endpoint.path)
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(api, endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": description},
        "tags": [{"name": api.title, "description": api.description} for api in apis],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": dict(
                chain.from_iterable(api.security_schemes.items() for api in apis)
            ),
        },
    }


def _kinds(api: Api) -> list[Any]:
    bodies = [
        kind
        for endpoint in api.endpoints
        for kind in (endpoint.query, endpoint.request, endpoint.response)
        if kind is not None
    ]
    others = [
        type(example) for endpoint in api.endpoints for example in endpoint.other_responses.values()
    ]
    in_paths = [kind for endpoint in api.endpoints for kind in endpoint.path_types.values()]
    return [*bodies, *others, *in_paths, api.error_format.shape]


def _operation(api: Api, endpoint: Endpoint, schemas: _Schemas) -> Json:
    operation_object: Json = {
        "tags": [api.title],
        "summary": endpoint.summary,
        "operationId": _operation_id(api, endpoint),
        "parameters": [
            *_path_parameters(endpoint, schemas),
            *_query_parameters(endpoint.query, schemas),
        ],
        "responses": {
            str(endpoint.status): _success(endpoint, schemas),
            **{
                str(status): _other(status, example, schemas)
                for status, example in endpoint.other_responses.items()
            },
            **_errors(api, endpoint, schemas),
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
    return operation_object


def _operation_id(api: Api, endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", f"{api.name} {endpoint.method.lower()} {endpoint.path}")
    return "_".join(words)


def _path_parameters(endpoint: Endpoint, schemas: _Schemas) -> list[Json]:
    kinds = endpoint.path_types
    parameters = {
        name: schemas.schema(kinds[name]) if name in kinds else {"type": "string"}
        for name in _parameter.findall(endpoint.path)
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in parameters.items()
    ]


def _query_parameters(query: Any, schemas: _Schemas) -> list[Json]:
    if query is None:
        return []
    fields = schemas.fields(query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in fields.get("required", ()),
            "schema": schema,
        }
        for name, schema in fields["properties"].items()
    ]


def _success(endpoint: Endpoint, schemas: _Schemas) -> Json:
    response: Json = {"description": HTTPStatus(endpoint.status).phrase, "headers": REQUEST_ID}
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


def _other(status: int, example: object, schemas: _Schemas) -> Json:
    content = _content("application/json", schemas.schema(type(example)), example)
    return {"description": HTTPStatus(status).phrase, "headers": REQUEST_ID, "content": content}


def _errors(api: Api, endpoint: Endpoint, schemas: _Schemas) -> Json:
    by_status: dict[str, Json] = {}
    for error in [*endpoint.errors, *_implied(endpoint)]:
        problem = to_problem(error)
        if problem is None:
            raise ValueError(
                f"{endpoint.method} {endpoint.path} declares {error!r}, which has no status"
            )
        response = by_status.setdefault(
            str(problem.status),
            {
                "description": HTTPStatus(problem.status).phrase,
                "headers": REQUEST_ID,
                "content": {
                    "application/json": {
                        "schema": schemas.schema(api.error_format.shape),
                        "examples": {},
                    }
                },
            },
        )
        body = msgspec.to_builtins(api.error_format.body(problem))
        response["content"]["application/json"]["examples"][problem.code] = {
            "summary": problem.message,
            "value": body,
        }
    return dict(sorted(by_status.items()))


def _implied(endpoint: Endpoint) -> list[TallyError]:
    implied: list[TallyError] = []
    if endpoint.request is not None:
        implied += [MISSING_FIELD, TOO_LARGE, NOT_JSON]
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
