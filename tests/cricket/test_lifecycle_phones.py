"""Live Activities on virtual phones with the real backend, from the start of a match to its end."""

from collections.abc import AsyncIterator

import pytest

from tally.cricket.model.records import ActivityStatus, EndReason
from tally.sim.phones.activitykit import ActivityState
from tally.sim.phones.follows import Bell
from tests.cricket.backend_harness import BackendHarness, open_backend_harness

ACTIVE, ENDED = ActivityStatus.ACTIVE, ActivityStatus.ENDED


@pytest.fixture(scope="module")
async def village(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BackendHarness]:
    async with open_backend_harness(tmp_path_factory.mktemp("village")) as opened:
        yield opened


async def test_a_match_is_displayed_on_every_device_from_start_to_end(
    village: BackendHarness,
) -> None:
    """The orchestrator starts it, each change updates it, and the final result ends it."""
    fixture = await village.match()
    phone, tablet = await village.phone("ana"), await village.phone("ana", "tablet")
    assert phone.app is not None
    assert await phone.app.follows.follow(fixture.match_id)
    await village.orchestrate()
    assert (phone.find_activity(fixture.match_id), phone.bell(fixture.match_id)) == (
        None,
        Bell.FILLED,
    )
    await village.poll(fixture, 0)
    await village.orchestrate()
    for device in (phone, tablet):
        activity = device.find_activity(fixture.match_id)
        assert activity is not None
        assert activity.is_push_started
        record = await village.record(fixture, device)
        assert (record.status, record.update_token) == (ACTIVE, activity.token)
    await village.poll(fixture, 4)
    for device in (phone, tablet):
        activity = device.find_activity(fixture.match_id)
        assert activity is not None
        assert "LIO 4/0" in activity.content["lines"]["lockScreen"]
    await village.confirm_result(fixture, 4)
    for device in (phone, tablet):
        [activity] = device.activity_kit.on_screen()
        assert (activity.state, activity.content["result"]) == (
            ActivityState.ACTIVE,
            "Lions won by 7 runs",
        )
    await village.archive(fixture)
    await village.orchestrate()
    for device in (phone, tablet):
        [activity] = device.activity_kit.on_screen()
        assert activity.state is ActivityState.ENDED
    for device in (phone, tablet):
        record = await village.record(fixture, device)
        assert (record.status, record.end_reason) == (ENDED, EndReason.MATCH_END)
        assert device.activity_kit.unknown == device.activity_kit.outdated == 0
    await phone.launch()
    assert phone.bell(fixture.match_id) is Bell.OUTLINE


async def test_an_activity_that_ios_dropped_is_restarted_by_the_orchestrator(
    village: BackendHarness,
) -> None:
    """APNs reports the token as invalid; the new activity displays the current score."""
    fixture = await village.match()
    phone = await village.phone("ben")
    assert phone.app is not None
    await phone.app.follows.follow(fixture.match_id)
    await village.poll(fixture, 0)
    await village.orchestrate()
    first = phone.find_activity(fixture.match_id)
    assert first is not None
    # iOS removes it without notifying the app.
    first.state = ActivityState.DISMISSED
    assert first.token is not None
    village.apns.devices.retire(first.token)
    await village.poll(fixture, 6)
    record = await village.record(fixture, phone)
    assert (record.status, record.end_reason) == (ENDED, EndReason.TOKEN_INVALID)
    await village.orchestrate()
    second = phone.find_activity(fixture.match_id)
    assert second is not None
    assert second is not first
    assert "LIO 6/0" in second.content["lines"]["lockScreen"]
    assert (await village.record(fixture, phone)).update_token == second.token


async def test_a_restarted_server_continues_a_live_match(village: BackendHarness) -> None:
    """Existing activities continue, new followers are started, and nobody is started twice."""
    fixture = await village.match()
    phone = await village.phone("cem")
    assert phone.app is not None
    await phone.app.follows.follow(fixture.match_id)
    await village.poll(fixture, 0)
    await village.orchestrate()
    before = phone.find_activity(fixture.match_id)
    await village.restart()
    other = await village.phone("cleo")
    assert other.app is not None
    await other.app.follows.follow(fixture.match_id)
    await village.deliver()
    await village.orchestrate()
    await village.poll(fixture, 8)
    assert phone.find_activity(fixture.match_id) is before
    for device in (phone, other):
        activity = device.find_activity(fixture.match_id)
        assert activity is not None
        assert "LIO 8/0" in activity.content["lines"]["lockScreen"]
        assert (
            len(
                [
                    running
                    for running in device.activity_kit.activities.values()
                    if running.match_id == fixture.match_id
                ]
            )
            == 1
        )


async def test_phones_on_a_channel_are_reached_with_one_request(village: BackendHarness) -> None:
    """An older phone has a token; all of them display the same, to the end."""
    fixture = await village.match()
    phones = [await village.phone(f"dev-{number}", os_version="18.1") for number in range(3)]
    old = await village.phone("dora")
    for phone in (*phones, old):
        assert phone.app is not None
        await phone.app.follows.follow(fixture.match_id)
    await village.poll(fixture, 0)
    await village.orchestrate()
    village.apns.log.clear()
    await village.poll(fixture, 6)
    assert village.apns.log.accepted == 2
    for phone in (*phones, old):
        activity = phone.find_activity(fixture.match_id)
        assert activity is not None
        assert "LIO 6/0" in activity.content["lines"]["lockScreen"]
    await village.confirm_result(fixture, 6)
    await village.archive(fixture)
    await village.orchestrate()
    assert {
        activity.state for phone in (*phones, old) for activity in phone.activity_kit.on_screen()
    } == {ActivityState.ENDED}
    assert {(await village.record(fixture, phone)).end_reason for phone in (*phones, old)} == {
        EndReason.MATCH_END
    }


async def test_a_new_phone_starts_what_its_owner_follows(village: BackendHarness) -> None:
    """It starts at the first launch, without the orchestrator."""
    fixture = await village.match()
    phone = await village.phone("eva")
    assert phone.app is not None
    await phone.app.follows.follow(fixture.match_id)
    await village.poll(fixture, 0)
    await village.orchestrate()
    tablet = await village.phone("eva", "tablet")
    await village.deliver()
    assert tablet.find_activity(fixture.match_id) is not None
    assert (await village.record(fixture, tablet)).status is ACTIVE
