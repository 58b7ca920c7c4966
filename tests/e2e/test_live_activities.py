"""Live Activities on virtual phones from the follow to the end, through the whole program."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.cricket.model.records import ActivityStatus, EndReason, PollerState
from tally.sim.phones.activitykit import ActivityState
from tally.sim.phones.follows import Bell
from tally.sim.phones.phone import VirtualPhone
from tests.e2e.phones_harness import PhonesHarness, open_phones_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[PhonesHarness]:
    async with open_phones_harness(tmp_path) as opened:
        yield opened


async def follow(harness: PhonesHarness, phone: VirtualPhone) -> None:
    assert phone.app is not None
    assert await harness.advance_until_done(phone.app.follows.follow(harness.match_id))
    await harness.deliver()


async def go_live(harness: PhonesHarness, *phones: VirtualPhone) -> None:
    """Bowl the first balls; the poller and the orchestrator find the match."""
    harness.broadcast.deliver(3)
    await harness.until(lambda: all(displays_score(phone, harness) for phone in phones))


def displays_score(phone: VirtualPhone, harness: PhonesHarness) -> bool:
    """Return whether the Lock Screen displays the score of the score service."""
    activity = phone.find_activity(harness.match_id)
    if activity is None:
        return False
    return " ".join(team.get("score", "-") for team in activity.content["teams"]) == harness.score


async def bowl(harness: PhonesHarness, balls: int, *phones: VirtualPhone) -> None:
    """Bowl some balls and wait until the phones display the score."""
    harness.broadcast.deliver(balls)
    await harness.until(lambda: all(displays_score(phone, harness) for phone in phones))


async def test_a_match_that_goes_live_is_started_updated_and_ended_on_the_phone(
    harness: PhonesHarness,
) -> None:
    """The orchestrator starts it, each ball updates it, and match_end leaves only the record."""
    phone = await harness.phone("ana", "ana-phone")
    await follow(harness, phone)
    assert phone.find_activity(harness.match_id) is None
    await go_live(harness, phone)
    assert (await harness.record("ana", "ana-phone")).status is ActivityStatus.ACTIVE
    assert phone.bell(harness.match_id) is Bell.FILLED
    for _ in range(6):
        await bowl(harness, 3, phone)
    activity = phone.find_activity(harness.match_id)
    assert activity is not None
    harness.broadcast.finish()
    await harness.until(lambda: activity.content["status"] == "finished")
    assert activity.state is ActivityState.ACTIVE
    harness.broadcast.step()  # it leaves the live scores
    await harness.skip(600)
    await harness.until(lambda: activity.state is ActivityState.ENDED)
    await harness.advance(75)
    record = await harness.record("ana", "ana-phone")
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.MATCH_END)
    match = await harness.cricket.repositories.matches.get(harness.match_id)
    assert match is not None
    assert (match.poller_state, match.expires_at is not None) == (PollerState.ENDED, True)
    fixture = await harness.cricket.repositories.fixtures.get(harness.match_id)
    assert fixture is not None
    assert (fixture.is_live, fixture.archived_at is not None) == (False, True)


async def test_an_invalid_token_is_repaired_within_one_cycle(harness: PhonesHarness) -> None:
    """The next push ends it; the orchestrator starts it again while its owner follows."""
    phone = await harness.phone("ben", "ben-phone")
    await follow(harness, phone)
    await go_live(harness, phone)
    lost = phone.find_activity(harness.match_id)
    assert lost is not None
    # iOS ends it without notifying the app.
    assert lost.token is not None
    lost.state = ActivityState.DISMISSED
    harness.apns.devices.retire(lost.token)
    harness.broadcast.deliver(3)
    await harness.until_processed()
    record = await harness.record("ben", "ben-phone")
    assert record.end_reason is EndReason.TOKEN_INVALID
    await harness.until(lambda: displays_score(phone, harness))
    restarted = phone.find_activity(harness.match_id)
    assert restarted is not None
    assert restarted is not lost
    assert harness.clock.seconds() - record.updated_at // 1000 <= 45
    assert (await harness.record("ben", "ben-phone")).status is ActivityStatus.ACTIVE
    await bowl(harness, 3, phone)


async def test_following_starts_and_unfollowing_ends_the_activity(
    harness: PhonesHarness,
) -> None:
    """Both happen without the orchestrator; no push follows."""
    await go_live(harness)
    await harness.until_processed()
    phone = await harness.phone("cho", "cho-phone")
    await follow(harness, phone)
    activity = phone.find_activity(harness.match_id)
    assert activity is not None
    assert displays_score(phone, harness)
    assert phone.app is not None
    await harness.advance_until_done(phone.app.follows.unfollow(harness.match_id))
    await harness.deliver()
    assert activity.state is not ActivityState.ACTIVE
    record = await harness.record("cho", "cho-phone")
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_UNFOLLOW)
    accepted = harness.apns.log.accepted
    harness.broadcast.deliver(6)
    await harness.until_processed()
    assert harness.apns.log.accepted == accepted


async def test_dismissing_ends_the_activity_on_all_devices(harness: PhonesHarness) -> None:
    """The device reports user_dismissed, and no device of the user displays the match."""
    phone, tablet = (
        await harness.phone("dev", "dev-phone"),
        await harness.phone("dev", "dev-tablet"),
    )
    await follow(harness, phone)
    await go_live(harness, phone, tablet)
    await phone.swipe_away(harness.match_id)
    await harness.advance_until_done(phone.wait_idle())
    await harness.deliver()
    assert (await harness.record("dev", "dev-phone")).end_reason is EndReason.USER_DISMISSED
    assert (await harness.record("dev", "dev-tablet")).status is ActivityStatus.ENDED
    assert tablet.find_activity(harness.match_id) is None
    assert phone.bell(harness.match_id) is Bell.OUTLINE


async def test_a_rotated_token_is_used_from_the_next_push_on(harness: PhonesHarness) -> None:
    """The activity stays the same."""
    phone = await harness.phone("eva", "eva-phone")
    await follow(harness, phone)
    await go_live(harness, phone)
    activity = phone.find_activity(harness.match_id)
    assert activity is not None
    before = activity.token
    await phone.activity_kit.rotate_token(activity)
    await harness.advance_until_done(phone.wait_idle())
    await bowl(harness, 3, phone)
    assert phone.find_activity(harness.match_id) is activity
    assert activity.token != before
    assert (await harness.record("eva", "eva-phone")).update_token == activity.token


@pytest.mark.judge
async def test_phones_with_ios_18_get_broadcasts(harness: PhonesHarness) -> None:
    """One broadcast reaches all of them; an older phone has a token. All end with the match."""
    new = [await harness.phone(f"fan-{number}", f"phone-{number}", "18.1") for number in range(3)]
    old = await harness.phone("gil", "gil-phone", "17.4")
    for phone in (*new, old):
        await follow(harness, phone)
    await go_live(harness, *new, old)
    shown = [
        activity
        for phone in (*new, old)
        if (activity := phone.find_activity(harness.match_id)) is not None
    ]
    accepted = harness.apns.log.accepted
    await bowl(harness, 3, *new, old)
    assert harness.apns.log.accepted == accepted + 2
    harness.broadcast.finish()
    await harness.until(lambda: all(one.content["status"] == "finished" for one in shown))
    await harness.skip(600)
    await harness.until(lambda: all(activity.state is ActivityState.ENDED for activity in shown))
    assert {activity.content["status"] for activity in shown} == {"finished"}
