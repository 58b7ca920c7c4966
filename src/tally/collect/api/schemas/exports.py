"""The JSON document of an account export, written page by page as the data is read."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from tally.collect.api.schemas.responses import AuditBody, CollectBody, audit_body
from tally.collect.api.schemas.sessions import SessionBody
from tally.collect.model.accounts import ExportedItem
from tally.collect.model.records import AuditEvent

T = TypeVar("T")

# Lists of any length. Items are sorted by key, so the items of each list follow one another.
STREAMED: Final = ("milestones", "workouts")
SINGLE: Final = ("profile", "strava")


class ExportBody(CollectBody, frozen=True):
    """Everything stored about a person. The items have the attributes of their tables.

    A milestone contains its awards. `strava` is the connection without its tokens. `events` are
    webhook events of Strava that are not applied yet.
    """

    exported_at_utc: str
    milestones: list[dict[str, Any]]
    workouts: list[dict[str, Any]]
    profile: dict[str, Any] | None
    strava: dict[str, Any] | None
    other: list[dict[str, Any]]
    events: list[dict[str, Any]]
    sessions: list[SessionBody]
    audit_events: list[AuditBody]


async def write_export(
    exported_at: str,
    items: AsyncIterable[list[ExportedItem]],
    events: AsyncIterable[list[ExportedItem]],
    sessions: Sequence[SessionBody],
    audit_events: AsyncIterable[list[AuditEvent]],
) -> AsyncGenerator[bytes, None]:
    """Yield the document in chunks, one for each page that is read."""
    yield b'{"exportedAtUtc":' + msgspec.json.encode(exported_at)
    async for chunk in _write_items(items):
        yield chunk
    async for chunk in _write_list("events", events, lambda event: event.content):
        yield chunk
    yield b',"sessions":' + msgspec.json.encode(sessions)
    async for chunk in _write_list("auditEvents", audit_events, audit_body):
        yield chunk
    yield b"}"


async def _write_list(
    name: str, pages: AsyncIterable[list[T]], body: Callable[[T], object]
) -> AsyncGenerator[bytes, None]:
    yield f',"{name}":['.encode()
    separator = b""
    async for page in pages:
        if page:
            yield separator + b",".join(msgspec.json.encode(body(element)) for element in page)
            separator = b","
    yield b"]"


async def _write_items(items: AsyncIterable[list[ExportedItem]]) -> AsyncGenerator[bytes, None]:
    current, missing = "", set(STREAMED)
    single: dict[str, dict[str, Any]] = {}
    other: list[dict[str, Any]] = []
    async for page in items:
        chunk = bytearray()
        for section, content in page:
            if section in SINGLE:
                single[section] = content
            elif section not in STREAMED:
                other.append(content)
            else:
                if section == current:
                    chunk += b","
                else:
                    chunk += f'{"]" if current else ""},"{section}":['.encode()
                    current = section
                    missing.discard(section)
                chunk += msgspec.json.encode(content)
        if chunk:
            yield bytes(chunk)
    end = "]" if current else ""
    yield (end + "".join(f',"{name}":[]' for name in sorted(missing))).encode()
    for name in SINGLE:
        yield f',"{name}":'.encode() + msgspec.json.encode(single.get(name))
    yield b',"other":' + msgspec.json.encode(other)
