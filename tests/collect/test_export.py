"""The export of an account contains everything stored about the person, and no secret."""

import asyncio
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tally.collect.model.records import ParkedEvent
from tally.collect.repository.table import COMMIT_COLLECT, user_pk
from tally.instance.repository.streams import TALLY_STREAMS
from tally.kit.jsonable import to_jsonable
from tally.store.api import BatchWrite
from tests.collect import factories
from tests.collect.conftest import TABLES
from tests.collect.server_harness import CollectServer, LinkedUser, assert_error, open_server

# Keys repeat other attributes, sealed attributes are encrypted secrets, and the time at which an
# item expires and the epoch of sessions say nothing about the person.
NO_DATA = ("PK", "SK", "GSI", "sealed", "ttl", "expiresAt", "sessionEpoch")

# `tally-streams` counts the open streams, one of which is the export itself.
PERSONAL_TABLES = tuple(table for table in TABLES if table is not TALLY_STREAMS)


def leaves(value: Any) -> Iterator[object]:
    """Yield all scalar values of a JSON document."""
    if isinstance(value, Mapping):
        for element in value.values():
            yield from leaves(element)
    elif isinstance(value, list):
        for element in value:
            yield from leaves(element)
    else:
        yield value


async def export(user: LinkedUser) -> Any:
    response = await user.browser.get("/account/export")
    assert response.status == 200, response
    assert response.header("content-type") == "application/json"
    assert response.header("cache-control") == "no-store"
    assert "attachment" in (response.header("content-disposition") or "")
    return response.json


async def active_user(server: CollectServer) -> LinkedUser:
    """Return a user with workouts, one of them deleted, a milestone and awards."""
    user = await server.create_user()
    await user.create_milestone()
    rides = [server.strava.record(user.athlete_id, "Ride", 2500) for _ in range(3)]
    await server.process_inbox()
    server.strava.delete(rides[0].id)
    await server.process_inbox()
    await server.collect.audit.flush()
    return user


async def test_the_export_has_everything_that_is_stored(fresh_server: CollectServer) -> None:
    """Every attribute of every item of every table that belongs to the person."""
    server = fresh_server
    ann, bob = await active_user(server), await active_user(server)
    await server.sign_in(server.browser(), "Somebody Else")
    document = await export(ann)
    exported = set(map(str, leaves(document)))
    checked = 0
    for table in PERSONAL_TABLES:
        for item in await server.scan_table(table):
            if ann.user_id not in str(item) and str(ann.athlete_id) not in str(item):
                continue
            for name, value in item.items():
                if not name.startswith(NO_DATA):
                    missing = set(map(str, leaves(to_jsonable(value)))) - exported
                    # Times of sessions are exported in RFC 3339.
                    assert name == "lastUsedAt" or not missing, (table.name, name, missing)
                    checked += 1
    assert checked > 100
    assert bob.user_id not in str(document)
    assert str(bob.athlete_id) not in str(document)


async def test_events_that_are_not_applied_are_exported_and_deleted(
    fresh_server: CollectServer,
) -> None:
    """Those that wait in the inbox, and those that are parked; of this athlete only."""
    server = fresh_server
    ann, bob = await server.create_user(), await server.create_user()
    repository = server.collect.deletion_worker.repository
    events = [factories.event(user.athlete_id) for user in (ann, ann, bob, bob)]
    for event in events:
        await repository.receive(event)
    for event in (events[0], events[2]):
        assert await repository.park_event(ParkedEvent(event, "a reason", factories.TIME))
    document = await export(ann)
    assert {event["eventKey"] for event in document["events"]} == {events[0].key, events[1].key}
    assert {event.get("reason") for event in document["events"]} == {"a reason", None}
    assert (await ann.browser.send("DELETE", "/account")).status == 202
    await server.process_deletions()
    items = str(await server.scan_table(COMMIT_COLLECT))
    assert [event.key in items for event in events] == [False, False, True, True]


async def test_the_export_is_structured(fresh_server: CollectServer) -> None:
    ann = await active_user(fresh_server)
    document = await export(ann)
    assert document["profile"]["userId"] == ann.user_id
    assert document["profile"]["email"]
    assert document["strava"]["athleteId"] == ann.athlete_id
    (milestone,) = document["milestones"]
    assert [award["partIndex"] for award in milestone["awards"]] == list(range(1, 8))
    assert [workout.get("isDeleted", False) for workout in document["workouts"]].count(True) == 1
    assert len(document["workouts"]) == 3
    (session,) = document["sessions"]
    assert session["current"]
    kinds = {event["eventType"] for event in document["auditEvents"]}
    assert {"AUTH_REGISTERED", "STRAVA_CONNECTED", "MILESTONE_PART_MINTED"} <= kinds


async def test_the_export_has_no_secret(fresh_server: CollectServer) -> None:
    """No token in clear or encrypted, no session id and no hash of one."""
    server = fresh_server
    ann = await active_user(server)
    text = str(await export(ann))
    secrets = {
        str(ann.browser.session),
        *server.strava.authorizations._access,
        *server.strava.authorizations._refresh,
        *server.oidc.grants._refresh_tokens,
    }
    for table in TABLES:
        for item in await server.scan_table(table):
            secrets |= {str(value) for name, value in item.items() if name.startswith("sealed")}
            if str(item.get("PK")).startswith("SESSION#"):
                secrets.add(str(item["PK"]).removeprefix("SESSION#"))
    assert len(secrets) >= 6
    assert [secret for secret in secrets if secret in text] == []
    assert "sealed" not in text
    assert "sessionEpoch" not in text


async def test_the_export_of_a_new_account_is_complete(server: CollectServer) -> None:
    """Empty sections are present."""
    browser = server.browser()
    await server.sign_in(browser, "Nia")
    document = (await browser.get("/account/export")).json
    assert document["milestones"] == document["workouts"] == document["other"] == []
    assert document["strava"] is None
    assert document["profile"]["email"].startswith("nia")


async def fill(server: CollectServer, user: LinkedUser, count: int) -> None:
    """Write workouts directly to the store."""
    items = [
        {
            "PK": user_pk(user.user_id),
            "SK": f"WORKOUT#STRAVA#{number:012}",
            "userId": user.user_id,
            "activityId": number,
            "name": f"Ride {number}",
            "sportType": "Ride",
            "startDateUtc": "2026-01-01T00:00:00Z",
            "distanceMeters": 1000,
        }
        for number in range(count)
    ]
    engine = server.application.engine
    for start in range(0, count, 200):  # DynamoDB Local answers more at once only after 10 s
        chunks = [items[first : first + 25] for first in range(start, min(start + 200, count), 25)]
        await asyncio.gather(
            *(engine.batch_write(BatchWrite(COMMIT_COLLECT, tuple(chunk))) for chunk in chunks)
        )


async def test_an_export_of_many_workouts_is_streamed(fresh_server: CollectServer) -> None:
    """Each workout once and in order, page by page, while other requests are answered."""
    server, count = fresh_server, 1_300
    ann = await server.create_user()
    await fill(server, ann, count)
    url = f"{server.url}/account/export"
    request = server.client.get(url).header("Cookie", f"cc_session={ann.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as response:
        assert response.status == 200
        received = bytes(await response.body_reader.read_chunk() or b"")
        assert (await ann.browser.get("/me")).status == 200
        while chunk := await response.body_reader.read_chunk():
            received += bytes(chunk)
    document = msgspec.json.decode(received)
    assert [workout["activityId"] for workout in document["workouts"]] == list(range(count))
    assert (await server.patterns())["Export a user's items"]["calls"] == count // 250 + 1


async def read_rest(response: Response) -> None:
    while await response.body_reader.read_chunk():
        pass


@pytest.mark.parametrize(("method", "path"), [("POST", "/auth/logout"), ("DELETE", "/sessions")])
async def test_an_export_ends_incomplete_when_its_session_ends(
    tmp_path: Path, method: str, path: str
) -> None:
    """The connection is aborted, so that nobody takes the part that arrived for the whole.

    The document is larger than the buffers of the connection.
    """
    async with open_server(tmp_path) as server:
        ann = await server.create_user()
        await fill(server, ann, 20_000)
        url, cookie = f"{server.url}/account/export", f"cc_session={ann.browser.session}"
        request = server.client.get(url).header("Cookie", cookie).streamed_read_buffer_limit(0)
        async with request.build_streamed() as response:
            assert await response.body_reader.read_chunk()
            assert (await ann.browser.send(method, path)).status == 204
            with pytest.raises(PyreqwestError):
                await read_rest(response)


async def test_exports_are_limited_per_person(fresh_server: CollectServer) -> None:
    """An export counts as an open stream while it runs, and no longer."""
    server = fresh_server
    ann = await server.create_user()
    clients = (f"person#collect:{ann.user_id}",)
    limits = server.application.streams.limits
    async with limits.reserve(clients), limits.reserve(clients), limits.reserve(clients):
        async with limits.reserve(clients), limits.reserve(clients):
            response = await ann.browser.get("/account/export")
            assert_error(response, 429, "too_many_streams")
        for _ in range(5):
            assert (await ann.browser.get("/account/export")).status == 200


@pytest.mark.judge
async def test_an_export_of_100_000_workouts_holds_one_page_in_memory(tmp_path: Path) -> None:
    """The peak of the memory in use is a fraction of the size of the document."""
    count = 100_000
    async with open_server(tmp_path) as server:
        ann = await server.create_user()
        await fill(server, ann, count)
        found = 0
        tracemalloc.start()
        try:
            async for page in server.collect.services.exports.item_pages(ann.user_id):
                found += sum(item.section == "workouts" for item in page)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found == count
    assert peak < 8_000_000
