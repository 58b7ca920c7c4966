"""A data directory of the previous revision continues: new indexes contain its items.

`previous_data_directory.sql` is the `store.db` of that revision in the middle of a live match:
ana's phone has an update token and a subscription, ben's uses the broadcast channel, and cleo's
displays the view of team 1. Items have no attributes that later revisions added.
"""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tally.cricket.model.records import ActivityStatus, Fixture, LiveActivity
from tally.cricket.repository.repositories import Repositories
from tally.sim.apns.channels import ChannelConfig
from tests.cricket.backend_harness import BackendHarness, open_backend_harness

MATCH_ID, COMING_ID = "65001", "65002"
USERS = ("ana", "ben", "cleo")
OWN_TOKEN = "aa" * 32
# After the last write of the previous revision.
AFTER_SECONDS = 60


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[BackendHarness]:
    (tmp_path / "data").mkdir()
    database = sqlite3.connect(tmp_path / "data" / "store.db")
    database.executescript(Path(__file__).with_name("previous_data_directory.sql").read_text())
    database.close()
    async with open_backend_harness(tmp_path / "data") as opened:
        opened.apns.devices.accepts_any_token = True
        await opened.clock.advance(AFTER_SECONDS)
        match = await opened.cricket.repositories.matches.get(MATCH_ID)
        assert match is not None
        assert match.channel_id is not None
        opened.apns.channels.configs[match.channel_id] = ChannelConfig(0, "LiveActivity")
        yield opened


async def live_fixture(repositories: Repositories) -> Fixture:
    fixture = await repositories.fixtures.get(MATCH_ID)
    assert fixture is not None
    return fixture


async def activity_of(harness: BackendHarness, user_id: str) -> LiveActivity:
    [activity] = await harness.cricket.repositories.activities.list_by_owner(user_id)
    return activity


def events(harness: BackendHarness, target: str | None) -> list[str]:
    return [
        msgspec.json.decode(payload)["aps"]["event"]
        for payload in harness.apns.log.payloads(target or "")
    ]


async def test_new_indexes_contain_the_items_of_the_previous_revision(
    harness: BackendHarness,
) -> None:
    repositories = harness.cricket.repositories
    for user_id in USERS:
        [device] = await repositories.devices.list_by_user(user_id, harness.clock.seconds())
        key = {(user_id, device.device_token)}
        assert await repositories.devices.owners_of_token(device.device_token) == key
        assert await repositories.devices.owners_of_id(device.device_id) == key
        assert device.push_to_start_token is not None
        assert await repositories.devices.owners_of_start_token(device.push_to_start_token) == key
        assert (await activity_of(harness, user_id)).match_id == MATCH_ID
    [subscription] = await repositories.subscriptions.list_by_owner("ana")
    assert subscription.push_token == OWN_TOKEN
    assert await repositories.fixtures.pending(10) == []


async def test_live_activities_of_the_previous_revision_continue(harness: BackendHarness) -> None:
    """They get updates and the end, and are not started a second time."""
    repositories = harness.cricket.repositories
    fixture = await live_fixture(repositories)
    running = {user_id: await activity_of(harness, user_id) for user_id in USERS}
    targets = [
        running["ana"].update_token,
        running["ben"].channel_id,
        running["cleo"].update_token,
        OWN_TOKEN,
    ]
    await harness.orchestrate()
    assert harness.apns.log.total == 0
    await harness.poll(fixture, 6)
    assert [events(harness, target) for target in targets] == [["update"]] * 4
    await harness.confirm_result(fixture, 6)
    await harness.archive(fixture)
    await harness.orchestrate()
    assert [events(harness, target)[-1] for target in targets] == ["end"] * 4
    now = harness.clock.seconds()
    assert {(await activity_of(harness, user_id)).status for user_id in USERS} == {
        ActivityStatus.ENDED
    }
    follows, _ = await repositories.follows.list_by_user("ben", now, 10)
    assert [follow.match_id for follow in follows] == [COMING_ID]
    assert await harness.cricket.services.operator_actions.restore_follows(MATCH_ID) == 3


async def test_a_device_of_the_previous_revision_changes_hands(harness: BackendHarness) -> None:
    repositories = harness.cricket.repositories
    [device] = await repositories.devices.list_by_user("ana", harness.clock.seconds())
    token = (await activity_of(harness, "ana")).update_token
    await harness.client_of("dan").register_device(device.device_token, "dans-phone", "18.1", "1")
    assert events(harness, token) == ["end"]
    assert await repositories.devices.list_by_user("ana", harness.clock.seconds()) == []


async def test_data_of_the_previous_revision_can_be_deleted(harness: BackendHarness) -> None:
    repositories = harness.cricket.repositories
    await harness.client_of("ana").delete_user()
    now = harness.clock.seconds()
    assert await repositories.devices.list_by_user("ana", now) == []
    assert await repositories.follows.list_by_user("ana", now, 10) == ([], None)
    assert await repositories.activities.list_by_owner("ana") == []
    assert await repositories.subscriptions.list_by_owner("ana") == []
    assert events(harness, OWN_TOKEN) == ["end"]
