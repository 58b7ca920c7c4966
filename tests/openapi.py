"""Tests a backend's OpenAPI document against its running server.

Schemathesis generates valid and invalid requests from the document. No response may be a 5xx, or
have a status, content type, header or body that the document does not declare. Each backend's
`test_openapi.py` lists its own operations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    CheckFunction,
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

JSON_TYPES = {"application/json", "application/problem+json"}
CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# The server itself refuses such requests, whatever the operation; no operation documents that.
SERVER_LIMITS = {414: "url_too_long", 431: "headers_too_large"}


@dataclass(frozen=True, slots=True)
class Document:
    """The document of the server at `url`: routes with `tag`, whose paths omit `prefix`."""

    url: str
    tag: str
    prefix: str
    schema: Any

    @classmethod
    def read(cls, url: str, tag: str, prefix: str, document: dict[str, Any]) -> "Document":
        return cls(url, tag, prefix, schemathesis.openapi.from_dict(document))

    def routes(self) -> set[tuple[str, str]]:
        """Return the method and path of every route of the backend."""
        paths = self.schema.raw_schema["paths"]
        ours = {
            path
            for path, methods in paths.items()
            if any(self.tag in operation["tags"] for operation in methods.values())
        }
        return {
            (method.upper(), path.removeprefix(self.prefix))
            for path in ours
            for method in paths[path]
        }

    def raw_operation(self, method: str, path: str) -> Any:
        """Return an operation as in the document."""
        return self.schema.raw_schema["paths"][f"{self.prefix}{path}"][method.lower()]

    def operation(self, method: str, path: str) -> Any:
        """Return an operation of schemathesis."""
        return self.schema[f"{self.prefix}{path}"][method]

    def errors(self, method: str, path: str) -> Iterator[Any]:
        """Yield the example bodies of an operation's errors."""
        for response in self.raw_operation(method, path)["responses"].values():
            problem = response.get("content", {}).get("application/problem+json", {})
            examples = problem.get("examples", {})
            yield from (example["value"] for example in examples.values())

    def check_response(self, case: Any, headers: dict[str, str]) -> int:
        """Send the request, check the response against the document, and return its status."""
        response = case.call(base_url=self.url, headers=headers, allow_redirects=False)
        if response.status_code in SERVER_LIMITS:
            assert response.json()["code"] == SERVER_LIMITS[response.status_code]
        else:
            case.validate_response(response, checks=CHECKS)
        assert response.headers["x-request-id"]
        return int(response.status_code)

    def check_stream_head(self, case: Any, headers: dict[str, str]) -> int:
        """Check only the head of a stream, whose body does not end; return its status."""
        media_types = case.operation.definition.raw["responses"]["200"]["content"]
        with requests.get(
            self.url + case.formatted_path, headers=headers, timeout=30, stream=True
        ) as response:
            assert response.headers["content-type"].partition(";")[0] in media_types
            return response.status_code

    def fuzz(
        self,
        operation: Any,
        mode: GenerationMode,
        headers: dict[str, str],
        *,
        examples: int,
        known: dict[str, str],
    ) -> None:
        """Send generated requests; path parameters are generated too, unless `known`."""
        strategy = (
            operation.as_strategy(mode, path_parameters=known)
            if known
            else operation.as_strategy(mode)
        )

        @settings(
            max_examples=examples,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(strategy)
        def send(case: Any) -> None:
            self.check_response(case, headers)

        send()


def check_examples(operation: Any, *, takes_nothing: bool = False) -> None:
    """Check that an operation has examples of its request, JSON response and errors.

    `takes_nothing` allows an empty example of the request.
    """
    assert operation["summary"]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        example = media["example"]
        assert example or (takes_nothing and example is not None), example
    for status, response in operation["responses"].items():
        assert int(status) < 400 or response["content"].keys() & JSON_TYPES, (status, response)
        for media_type in response.get("content", {}).keys() & JSON_TYPES:
            content = response["content"][media_type]
            assert "example" in content or content["examples"], (status, content)
