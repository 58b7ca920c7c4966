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

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@dataclass(frozen=True, slots=True)
class Document:
    """What the server at `url` tells of the routes that carry `tag`; their paths are given without `prefix`."""

    url: str
    tag: str
    prefix: str
    schema: Any

    @classmethod
    def read(cls, url: str, tag: str, prefix: str, document: dict[str, Any]) -> "Document":
        return cls(url, tag, prefix, schemathesis.openapi.from_dict(document))

    def routes(self) -> set[tuple[str, str]]:
        """Method and path of every route of the backend."""
        told = self.schema.raw_schema["paths"]
        ours = {
            path
            for path, methods in told.items()
            if any(self.tag in each["tags"] for each in methods.values())
        }
        return {
            (method.upper(), path.removeprefix(self.prefix))
            for path in ours
            for method in told[path]
        }

    def told(self, method: str, path: str) -> Any:
        """An operation as it is written in the document."""
        return self.schema.raw_schema["paths"][f"{self.prefix}{path}"][method.lower()]

    def operation(self, method: str, path: str) -> Any:
        """An operation as schemathesis asks for it."""
        return self.schema[f"{self.prefix}{path}"][method]

    def errors(self, method: str, path: str) -> Iterator[Any]:
        """The bodies of the errors that an operation is told with."""
        for answer in self.told(method, path)["responses"].values():
            examples = answer.get("content", {}).get("application/json", {}).get("examples", {})
            yield from (example["value"] for example in examples.values())

    def answer_of(self, case: Any, headers: dict[str, str]) -> int:
        """The status of the answer, which must be a documented one."""
        answer = case.call(base_url=self.url, headers=headers, allow_redirects=False)
        case.validate_response(answer, checks=CHECKS)
        assert answer.headers["x-request-id"]
        return int(answer.status_code)

    def head_of(self, case: Any, headers: dict[str, str]) -> int:
        """The same for a stream, which has no end: what its head says is all there is to check."""
        told = case.operation.definition.raw["responses"]["200"]["content"]
        with requests.get(
            self.url + case.formatted_path, headers=headers, timeout=30, stream=True
        ) as answer:
            assert answer.headers["content-type"].partition(";")[0] in told
            return answer.status_code

    def check_made_up(
        self,
        operation: Any,
        mode: GenerationMode,
        headers: dict[str, str],
        *,
        examples: int,
        known: dict[str, str],
    ) -> None:
        """Ask for what is made up; the parameters of the path are made up too, unless they are `known`."""
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
        def ask(case: Any) -> None:
            self.answer_of(case, headers)

        ask()


def check_examples(told: Any, *, takes_nothing: bool = False) -> None:
    """An operation has examples of its request, of its answer where that is JSON, and of every error.

    That of a request has something in it, except where an empty body is a good one:
    `takes_nothing`.
    """
    assert told["summary"]
    if "requestBody" in told:
        example = told["requestBody"]["content"]["application/json"]["example"]
        assert example or (takes_nothing and example is not None), example
    for status, answer in told["responses"].items():
        content = answer.get("content", {}).get("application/json", {})
        assert not content or "example" in content or content["examples"], (status, content)
