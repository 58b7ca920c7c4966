"""Live Activities from the follow to the end, on virtual phones: every arrow of their life, through the whole program."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally.cricket.model.records import ActivityStatus, EndReason, PollerState
from tally.sim.phones.activitykit import ActivityState
from tally.sim.phones.follows import Bell
from tally.sim.phones.phone import VirtualPhone
from tests.e2e.theatre import Theatre, open_theatre


@pytest.fixture
async def theatre(tmp_path: Path) -> AsyncIterator[Theatre]:
    async with open_theatre(tmp_path) as opened:
        yield opened


async def follow(theatre: Theatre, phone: VirtualPhone) -> None:
    assert phone.app is not None
    assert await theatre.sit_out(phone.app.follows.follow(theatre.match_id))
    await theatre.deliver()


async def go_live(theatre: Theatre, *phones: VirtualPhone) -> None:
    """The toss and the first balls; the poller and the orchestrator find them by themselves."""
    theatre.broadcast.deliver(3)
    await theatre.until(lambda: all(shows(phone, theatre) for phone in phones))


def shows(phone: VirtualPhone, theatre: Theatre) -> bool:
    """Whether the Lock Screen says what the score service says."""
    activity = phone.shown(theatre.match_id)
    if activity is None:
        return False
    return " ".join(team.get("score", "-") for team in activity.content["teams"]) == theatre.score


async def bowl(theatre: Theatre, balls: int, *phones: VirtualPhone) -> None:
    """Some balls, until they are on the screens."""
    theatre.broadcast.deliver(balls)
    await theatre.until(lambda: all(shows(phone, theatre) for phone in phones))


async def test_a_match_that_goes_live_is_started_updated_and_ended_on_the_phone(
    theatre: Theatre,
) -> None:
    """By the orchestrator's start, updates ball by ball, and match_end; afterwards nothing of it is left but the record."""
    phone = await theatre.phone("ana", "ana-phone")
    await follow(theatre, phone)
    assert phone.shown(theatre.match_id) is None
    await go_live(theatre, phone)
    assert (await theatre.record("ana", "ana-phone")).status is ActivityStatus.ACTIVE
    assert phone.bell(theatre.match_id) is Bell.FILLED
    for _ in range(6):
        await bowl(theatre, 3, phone)
    activity = phone.shown(theatre.match_id)
    assert activity is not None
    theatre.broadcast.play_out()
    await theatre.until(lambda: activity.state is ActivityState.ENDED)
    assert activity.content["status"] == "finished"
    theatre.broadcast.step()  # it leaves the live scores
    await theatre.pass_time(75)
    record = await theatre.record("ana", "ana-phone")
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.MATCH_END)
    match = await theatre.cricket.repositories.matches.get(theatre.match_id)
    assert match is not None
    assert (match.poller_state, match.expires_at is not None) == (PollerState.ENDED, True)
    fixture = await theatre.cricket.repositories.fixtures.get(theatre.match_id)
    assert fixture is not None
    assert (fixture.is_live, fixture.archived_at is not None) == (False, True)


async def test_a_token_that_became_invalid_is_healed_within_one_cycle(theatre: Theatre) -> None:
    """It ends by token_invalid with the next push, and is started again by the orchestrator while its owner follows."""
    phone = await theatre.phone("ben", "ben-phone")
    await follow(theatre, phone)
    await go_live(theatre, phone)
    lost = phone.shown(theatre.match_id)
    assert lost is not None
    await phone.kit.end(lost)  # the system has ended it, and tells nobody
    theatre.broadcast.deliver(3)
    await theatre.until_heard()
    record = await theatre.record("ben", "ben-phone")
    assert record.end_reason is EndReason.TOKEN_INVALID
    await theatre.until(lambda: shows(phone, theatre))
    healed = phone.shown(theatre.match_id)
    assert healed is not None
    assert healed is not lost
    assert theatre.clock.seconds() - record.updated_at // 1000 <= 45
    assert (await theatre.record("ben", "ben-phone")).status is ActivityStatus.ACTIVE
    await bowl(theatre, 3, phone)


async def test_a_follow_of_a_live_match_shows_it_at_once_and_an_unfollow_takes_it_away(
    theatre: Theatre,
) -> None:
    """Without waiting for the orchestrator, in both directions; after that no push comes."""
    await go_live(theatre)
    await theatre.until_heard()
    phone = await theatre.phone("cho", "cho-phone")
    await follow(theatre, phone)
    activity = phone.shown(theatre.match_id)
    assert activity is not None
    assert shows(phone, theatre)
    assert phone.app is not None
    await theatre.sit_out(phone.app.follows.unfollow(theatre.match_id))
    await theatre.deliver()
    assert activity.state is not ActivityState.ACTIVE
    record = await theatre.record("cho", "cho-phone")
    assert (record.status, record.end_reason) == (ActivityStatus.ENDED, EndReason.USER_UNFOLLOW)
    taken = theatre.apns.log.accepted
    theatre.broadcast.deliver(6)
    await theatre.until_heard()
    assert theatre.apns.log.accepted == taken


async def test_swiping_it_away_ends_it_everywhere(theatre: Theatre) -> None:
    """The device says user_dismissed, and no device of the person shows it any more."""
    phone, tablet = (
        await theatre.phone("dev", "dev-phone"),
        await theatre.phone("dev", "dev-tablet"),
    )
    await follow(theatre, phone)
    await go_live(theatre, phone, tablet)
    await phone.swipe_away(theatre.match_id)
    await theatre.sit_out(phone.settled())
    await theatre.deliver()
    assert (await theatre.record("dev", "dev-phone")).end_reason is EndReason.USER_DISMISSED
    assert (await theatre.record("dev", "dev-tablet")).status is ActivityStatus.ENDED
    assert tablet.shown(theatre.match_id) is None
    assert phone.bell(theatre.match_id) is Bell.OUTLINE


async def test_a_rotated_token_is_used_from_the_next_push_on(theatre: Theatre) -> None:
    """The same activity, reached by its new token."""
    phone = await theatre.phone("eva", "eva-phone")
    await follow(theatre, phone)
    await go_live(theatre, phone)
    activity = phone.shown(theatre.match_id)
    assert activity is not None
    before = activity.token
    await phone.kit.rotate(activity)
    await theatre.sit_out(phone.settled())
    await bowl(theatre, 3, phone)
    assert phone.shown(theatre.match_id) is activity
    assert activity.token != before
    assert (await theatre.record("eva", "eva-phone")).update_token == activity.token


async def test_phones_of_ios_18_are_reached_by_the_matchs_channel(theatre: Theatre) -> None:
    """One broadcast for all of them; an older phone keeps its token, and all end with the match."""
    new = [await theatre.phone(f"fan-{number}", f"phone-{number}", "18.1") for number in range(3)]
    old = await theatre.phone("gil", "gil-phone", "17.4")
    for phone in (*new, old):
        await follow(theatre, phone)
    await go_live(theatre, *new, old)
    shown = [
        activity for phone in (*new, old) if (activity := phone.shown(theatre.match_id)) is not None
    ]
    taken = theatre.apns.log.accepted
    await bowl(theatre, 3, *new, old)
    assert theatre.apns.log.accepted == taken + 2
    theatre.broadcast.play_out()
    await theatre.until(lambda: all(activity.state is ActivityState.ENDED for activity in shown))
    assert {activity.content["status"] for activity in shown} == {"finished"}
