"""The OpenAPI document of an app, made of the operations it serves and the msgspec structs they name.

Besides what an operation declares, the document has what the kit itself answers: 400 where there is
a query or a body, 413 and 415 where there is a body, 401 where there is security and the operation
does not say which.
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

MALFORMED: Final = Invalid("name is missing", code="missing_field", field="name")
TOO_LARGE: Final = TooLarge("The body must be at most 1048576 bytes", limit=1048576)
NOT_JSON: Final = UnsupportedMedia(
    "The content type must be application/json", field="Content-Type"
)
UNKNOWN_CALLER: Final = Unauthenticated("Missing or invalid credential")
REFERENCE: Final = "#/components/schemas/"
REQUEST_ID: Final = {
    "X-Request-Id": {
        "description": "Identifies the request in the logs.",
        "schema": {"type": "string"},
    },
}

_parameter = re.compile(r"{(\w+)(?::\w+)?}")


class _Schemas:
    """The JSON schemas of all structs that are named, each defined once."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        schemas, self.components = msgspec.json.schema_components(
            kinds, ref_template=REFERENCE + "{name}"
        )
        self._by_kind = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}

    def of(self, kind: Any) -> Json:
        return self._by_kind[id(kind)]

    def fields(self, kind: Any) -> Json:
        fields: Json = self.components[self.of(kind)["$ref"].removeprefix(REFERENCE)]
        return fields


def document(title: str, version: str, description: str, apis: Sequence[Api]) -> Json:
    """The document for all of `apis`, each under its prefix and with a tag of its name."""
    schemas = _Schemas([kind for api in apis for kind in _kinds(api)])
    paths: dict[str, Json] = {}
    for api in apis:
        for operation in api.endpoints:
            path = _parameter.sub(r"{\1}", api.prefix + operation.path)
            paths.setdefault(path, {})[operation.method.lower()] = _operation(
                api, operation, schemas
            )
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
    named = [
        kind
        for each in api.endpoints
        for kind in (each.query, each.request, each.response)
        if kind is not None
    ]
    others = [type(example) for each in api.endpoints for example in each.other_responses.values()]
    in_paths = [kind for each in api.endpoints for kind in each.path_types.values()]
    return [*named, *others, *in_paths, api.error_format.shape]


def _operation(api: Api, operation: Endpoint, schemas: _Schemas) -> Json:
    told: Json = {
        "tags": [api.title],
        "summary": operation.summary,
        "operationId": _operation_id(api, operation),
        "parameters": [
            *_path_parameters(operation, schemas),
            *_query_parameters(operation.query, schemas),
        ],
        "responses": {
            str(operation.status): _success(operation, schemas),
            **{
                str(status): _other(status, example, schemas)
                for status, example in operation.other_responses.items()
            },
            **_errors(api, operation, schemas),
        },
    }
    if operation.description:
        told["description"] = operation.description
    if operation.security:
        told["security"] = [{name: []} for name in operation.security]
    if operation.request is not None:
        content = _content(
            "application/json", schemas.of(operation.request), operation.request_example
        )
        told["requestBody"] = {"required": True, "content": content}
    return told


def _operation_id(api: Api, operation: Endpoint) -> str:
    words = re.findall(r"\w+", f"{api.name} {operation.method.lower()} {operation.path}")
    return "_".join(words)


def _path_parameters(operation: Endpoint, schemas: _Schemas) -> list[Json]:
    kinds = operation.path_types
    told = {
        name: schemas.of(kinds[name]) if name in kinds else {"type": "string"}
        for name in _parameter.findall(operation.path)
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in told.items()
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
            "schema": held,
        }
        for name, held in fields["properties"].items()
    ]


def _success(operation: Endpoint, schemas: _Schemas) -> Json:
    told: Json = {"description": HTTPStatus(operation.status).phrase, "headers": REQUEST_ID}
    if operation.response is not None:
        schema = schemas.of(operation.response)
        told["content"] = _content(operation.media_type, schema, operation.response_example)
    elif operation.media_type != "application/json":
        told["content"] = _content(
            operation.media_type, {"type": "string"}, operation.response_example
        )
    for media_type in operation.other_media_types:
        told["content"] |= _content(media_type, {"type": "string"}, None)
    return told


def _other(status: int, example: object, schemas: _Schemas) -> Json:
    content = _content("application/json", schemas.of(type(example)), example)
    return {"description": HTTPStatus(status).phrase, "headers": REQUEST_ID, "content": content}


def _errors(api: Api, operation: Endpoint, schemas: _Schemas) -> Json:
    by_status: dict[str, Json] = {}
    for error in [*operation.errors, *_implied(operation)]:
        problem = to_problem(error)
        if problem is None:
            raise ValueError(
                f"{operation.method} {operation.path} declares {error!r}, which has no status"
            )
        told = by_status.setdefault(
            str(problem.status),
            {
                "description": HTTPStatus(problem.status).phrase,
                "headers": REQUEST_ID,
                "content": {
                    "application/json": {
                        "schema": schemas.of(api.error_format.shape),
                        "examples": {},
                    }
                },
            },
        )
        body = msgspec.to_builtins(api.error_format.body(problem))
        told["content"]["application/json"]["examples"][problem.code] = {
            "summary": problem.message,
            "value": body,
        }
    return dict(sorted(by_status.items()))


def _implied(operation: Endpoint) -> list[TallyError]:
    implied: list[TallyError] = []
    if operation.request is not None:
        implied += [MALFORMED, TOO_LARGE, NOT_JSON]
    elif operation.query is not None:
        implied.append(MALFORMED)
    if operation.security and not any(
        isinstance(error, Unauthenticated) for error in operation.errors
    ):
        implied.append(UNKNOWN_CALLER)
    return implied


def _content(media_type: str, schema: Json, example: object) -> Json:
    told: Json = {"schema": schema}
    if example is not None:
        told["example"] = msgspec.to_builtins(example)
    return {media_type: told}
