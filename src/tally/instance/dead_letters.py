"""The admin routes of dead letters: changes that a named consumer could not handle."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.types import ASGIApp

from tally.errors import NotFound, TallyError
from tally.instance.admin_errors import ADMIN_ERRORS, BODY_ERRORS
from tally.instance.consumers import NamedConsumer, unknown_letter
from tally.instance.repository.consumers import ConsumerRepository, DeadLetter
from tally.instance.webhooks.runner import WebhookRunner
from tally.instance.webhooks.service import WebhookAdministration
from tally.kit.body import StrictStruct, read_json
from tally.kit.clock import rfc3339_seconds
from tally.kit.endpoints import Endpoint
from tally.kit.http import Json
from tally.kit.jsonable import to_jsonable
from tally.kit.operators import OPERATOR_SCHEME

_OPERATOR: Final[dict[str, Any]] = {"security": (OPERATOR_SCHEME,)}


class LetterIds(StrictStruct, frozen=True):
    """Which dead letters of a consumer."""

    ids: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=512)]], Meta(min_length=1, max_length=100)
    ]


class LetterBody(msgspec.Struct, frozen=True):
    """A change that was not handled: its item's key, and the error of the last attempt."""

    id: str
    kind: str
    key: dict[str, Any]
    changed_at: str
    error: str


class LetterList(msgspec.Struct, frozen=True):
    items: list[LetterBody]


class ConsumerList(msgspec.Struct, frozen=True):
    items: list[str]


class FailedLetter(msgspec.Struct, frozen=True):
    id: str
    error: str


class RetryResult(msgspec.Struct, frozen=True):
    """The letters that were handled are deleted; the others stay, with the error of this try."""

    handled: list[str]
    failed: list[FailedLetter]


class DiscardResult(msgspec.Struct, frozen=True):
    discarded: int


@dataclass(frozen=True, slots=True)
class DeadLetterHandlers:
    """One method per route."""

    webhooks: WebhookAdministration
    runner: WebhookRunner
    repository: ConsumerRepository

    async def list_consumers(self, _: Request) -> ASGIApp:
        return Json(ConsumerList([consumer.name for consumer in await self._consumers()]))

    async def list_letters(self, request: Request) -> ASGIApp:
        consumer = await self._consumer(request)
        letters = await self.repository.list_letters(consumer.name)
        return Json(LetterList([_letter_body(letter) for letter in letters]))

    async def retry_letters(self, request: Request) -> ASGIApp:
        consumer = await self._consumer(request)
        ids = (await read_json(request, LetterIds)).ids
        await self._check(consumer, ids)
        handled, failed = [], []
        for letter_id in ids:
            try:
                await consumer.replay(letter_id)
            except TallyError as error:
                failed.append(FailedLetter(letter_id, error.message))
            except Exception as error:  # noqa: BLE001  (a handler may raise anything)
                failed.append(FailedLetter(letter_id, f"{type(error).__name__}: {error}"[:500]))
            else:
                handled.append(letter_id)
        return Json(RetryResult(handled, failed))

    async def discard_letters(self, request: Request) -> ASGIApp:
        consumer = await self._consumer(request)
        ids = (await read_json(request, LetterIds)).ids
        await self._check(consumer, ids)
        for letter_id in ids:
            await self.repository.delete_letter(consumer.name, letter_id)
        return Json(DiscardResult(len(ids)))

    async def _consumers(self) -> list[NamedConsumer]:
        return [
            self.runner.consumer(webhook, source)
            for webhook in await self.webhooks.all()
            for source in self.runner.used_sources(webhook.kinds)
        ]

    async def _consumer(self, request: Request) -> NamedConsumer:
        name = request.path_params["consumer"]
        for consumer in await self._consumers():
            if consumer.name == name:
                return consumer
        raise _unknown_consumer(name)

    async def _check(self, consumer: NamedConsumer, ids: list[str]) -> None:
        for letter_id in ids:
            if await self.repository.get_letter(consumer.name, letter_id) is None:
                raise unknown_letter(letter_id)


def _unknown_consumer(name: str) -> NotFound:
    return NotFound(f"Consumer {name} does not exist", code="consumer_not_found")


def _letter_body(letter: DeadLetter) -> LetterBody:
    change = letter.change
    return LetterBody(
        id=letter.id,
        kind=change.kind,
        key=to_jsonable(change.key),
        changed_at=rfc3339_seconds(int(change.at)),
        error=letter.error,
    )


def dead_letter_endpoints(handlers: DeadLetterHandlers) -> tuple[Endpoint, ...]:
    name = "webhook-06FBZT2Q2V8M0A4K6X9N3R5T7W-collect"
    letter = LetterBody(
        id="1767225600000#T4~1",
        kind="INSERT",
        key={"PK": "USER#ana", "SK": "MILESTONE#1#AWARD#001"},
        changed_at="2026-01-01T00:00:00Z",
        error="ValueError: the item has no name",
    )
    unknown = (_unknown_consumer(name), *ADMIN_ERRORS)
    errors = (*BODY_ERRORS, unknown_letter(letter.id), *unknown)
    return (
        Endpoint(
            "GET",
            "/consumers",
            handlers.list_consumers,
            "List the named consumers of change logs",
            response=ConsumerList,
            response_example=ConsumerList([name]),
            errors=ADMIN_ERRORS,
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/consumers/{consumer}/dead-letters",
            handlers.list_letters,
            "List the changes that a consumer could not handle",
            description="Returns the oldest 1,000.",
            response=LetterList,
            response_example=LetterList([letter]),
            errors=unknown,
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/consumers/{consumer}/dead-letters/retry",
            handlers.retry_letters,
            "Handle dead letters again",
            request=LetterIds,
            request_example={"ids": [letter.id]},
            response=RetryResult,
            response_example=RetryResult([letter.id], []),
            errors=errors,
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/consumers/{consumer}/dead-letters/discard",
            handlers.discard_letters,
            "Delete dead letters",
            request=LetterIds,
            request_example={"ids": [letter.id]},
            response=DiscardResult,
            response_example=DiscardResult(1),
            errors=errors,
            **_OPERATOR,
        ),
    )
