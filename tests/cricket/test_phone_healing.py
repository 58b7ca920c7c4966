"""Live Activities on virtual phones that miss pushes, pause or change hands."""

from collections.abc import AsyncIterator

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, Fixture
from tally.sim.phones.phone import VirtualPhone
from tests.cricket.backend_harness import BackendHarness, open_backend_harness

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED
MINUTE = 60


@pytest.fixture(scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BackendHarness]:
    async with open_backend_harness(tmp_path_factory.mktemp("healing")) as opened:
        yield opened


async def follow(phone: VirtualPhone, fixture: Fixture) -> None:
    assert phone.app is not None
    assert await phone.app.follows.follow(fixture.match_id)


async def pause(harness: BackendHarness, fixture: Fixture, *phones: VirtualPhone) -> None:
    """Let 45 minutes pass without a change, with polls and the limits of iOS and the app."""
    for _ in range(9):
        await harness.clock.advance(5 * MINUTE)
        await harness.poll(fixture, 6, MatchStatus.BREAK)
        for phone in phones:
            await phone.apply_time_limits()
            await phone.wait_idle()
        await harness.orchestrate()


def lock_screen(phone: VirtualPhone, fixture: Fixture) -> str:
    activity = phone.find_activity(fixture.match_id)
    assert activity is not None
    return str(activity.content["lines"]["lockScreen"])


async def test_a_pause_of_45_minutes_ends_nothing_and_heals_who_was_offline(
    harness: BackendHarness,
) -> None:
    """Quiet updates keep activities alive; a phone without them gets one start when it is back."""
    fixture = await harness.match()
    watching = await harness.phone("ana", os_version="18.1")
    offline = await harness.phone("ben", os_version="18.1")
    for phone in (watching, offline):
        await follow(phone, fixture)
    await harness.poll(fixture, 6)
    await harness.orchestrate()
    first = watching.find_activity(fixture.match_id)
    assert first is not None
    assert (await harness.record(fixture, offline)).status is ACTIVE
    await offline.set_online(is_online=False)
    await pause(harness, fixture, watching, offline)
    assert watching.find_activity(fixture.match_id) is first
    assert offline.find_activity(fixture.match_id) is None
    await offline.set_online(is_online=True)
    assert (await harness.record(fixture, offline)).status is PENDING
    await harness.poll(fixture, 7)
    for _ in range(3):
        await harness.orchestrate()
    record = await harness.record(fixture, offline)
    assert (record.status, record.starts) == (ACTIVE, 2)
    await harness.poll(fixture, 8)
    assert watching.find_activity(fixture.match_id) is first
    for phone in (watching, offline):
        assert "LIO 8/0" in lock_screen(phone, fixture)


async def test_a_phone_that_was_offline_at_the_start_displays_the_match_once(
    harness: BackendHarness,
) -> None:
    """The starts that it missed have expired; the one that reaches it is confirmed."""
    fixture = await harness.match()
    phone = await harness.phone("cem", os_version="18.1")
    await follow(phone, fixture)
    await phone.set_online(is_online=False)
    await harness.poll(fixture, 0)
    for _ in range(12):
        await harness.orchestrate()
    assert (await harness.record(fixture, phone)).status is PENDING
    await phone.set_online(is_online=True)
    await harness.deliver()
    await harness.poll(fixture, 4)
    assert (await harness.record(fixture, phone)).status is ACTIVE
    started = [
        activity
        for activity in phone.activity_kit.activities.values()
        if activity.match_id == fixture.match_id
    ]
    assert len(started) == 1
    assert "LIO 4/0" in lock_screen(phone, fixture)


@pytest.mark.parametrize("os_version", ["17.4", "18.1"])
async def test_after_the_sign_out_a_phone_displays_only_what_its_next_user_follows(
    harness: BackendHarness, os_version: str
) -> None:
    first, second = await harness.match(), await harness.match()
    owner, name = f"dora-{os_version}", f"shared-{os_version}"
    phone = await harness.phone(owner, name, os_version)
    await follow(phone, first)
    for fixture in (first, second):
        await harness.poll(fixture, 0)
    await harness.orchestrate()
    assert (await harness.record(first, phone)).status is ACTIVE
    await phone.sign_out()
    await phone.wait_idle()
    assert phone.activity_kit.on_screen() == []
    assert (await harness.record(first, phone)).status is ENDED
    phone.api = harness.client_of(f"eli-{os_version}")
    await phone.launch()
    await follow(phone, second)
    await harness.deliver()
    await harness.orchestrate(301)
    for fixture in (first, second):
        await harness.poll(fixture, 4)
    assert [running.match_id for running in phone.activity_kit.running()] == [second.match_id]
    assert "LIO 4/0" in lock_screen(phone, second)
