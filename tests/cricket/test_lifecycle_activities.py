"""Live Activities as people and apps see them: begun by a follow, handed a token, turned, rotated, swiped away, unfollowed."""

from dataclasses import replace

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import NEUTRAL, ActivityStatus, EndReason, PushTarget
from tally.errors import Conflict
from tally.sim.apns.faults import PushFault
from tests.cricket import made_up
from tests.cricket.activities_harness import Stadium

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED


async def test_a_follow_of_a_live_match_starts_it_on_each_device(stadium: Stadium) -> None:
    """At once and once, whoever else looks; a device without a token for starts is left alone."""
    fixture = await stadium.match()
    follow, phones = await stadium.follower(fixture, 2)
    now = stadium.clock.milliseconds()
    await stadium.devices.register(
        made_up.device(follow.user_id, updated_at=now), is_only_one=False
    )
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    await instance.activities.on_followed(fixture, follow)
    await instance.orchestrator.run()
    assert [stadium.events(phone.start_token) for phone in phones] == [["start"], ["start"]]
    assert [await stadium.status(fixture, phone) for phone in phones] == [PENDING, PENDING]
    assert stadium.apple.sim.log.accepted == 2


async def test_a_device_that_comes_later_shows_what_its_owner_follows(stadium: Stadium) -> None:
    """As soon as it can be started on; what is not live, or not followed, is left alone."""
    fixture, coming, strange = (
        await stadium.match(),
        await stadium.match(live_updated_at=None),
        await stadium.match(),
    )
    follow, [phone] = await stadium.follower(fixture)
    await stadium.follower(coming, 0, user_id=follow.user_id)
    instance = stadium.instance()
    await instance.activities.on_device_ready(follow.user_id)
    await stadium.runs(instance, fixture, phone)
    tablet = await stadium.phone(follow.user_id)
    for _ in range(2):
        await instance.activities.on_device_ready(follow.user_id)
    assert [stadium.events(each.start_token) for each in (phone, tablet)] == [["start"], ["start"]]
    shown = [await stadium.status(each, tablet) for each in (fixture, coming, strange)]
    assert shown == [PENDING, None, None]


async def test_each_device_has_its_own_activity_and_token(stadium: Stadium) -> None:
    """What happens to one leaves the other as it is."""
    fixture = await stadium.match()
    follow, [phone, tablet] = await stadium.follower(fixture, 2)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    first, second = (
        await stadium.runs(instance, fixture, phone),
        await stadium.runs(instance, fixture, tablet),
    )
    now = stadium.clock.milliseconds()
    pages = stadium.activities.targets(fixture.match_id, now)
    targets = {each.device_id: each.update_token async for page in pages for each in page}
    assert targets == {phone.device_id: first, tablet.device_id: second}
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    await stadium.activities.end(activity, EndReason.TOKEN_INVALID, now, only_token=first)
    assert [await stadium.status(fixture, each) for each in (phone, tablet)] == [ENDED, ACTIVE]


async def test_who_hands_in_a_token_gets_what_has_happened_since_the_start(
    stadium: Stadium,
) -> None:
    """And nothing where nothing has happened: the start has shown it."""
    fixture = await stadium.match()
    follow, [prompt, slow] = await stadium.follower(fixture, 2)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    early = await stadium.runs(instance, fixture, prompt)
    stadium.score(fixture, "LIO 4/0")
    late = await stadium.runs(instance, fixture, slow)
    assert stadium.events(early) == []
    [aps] = stadium.pushed(late)
    assert (aps["event"], aps["content-state"]["lines"]["lockScreen"]) == ("update", "LIO 4/0")


async def test_a_state_that_is_too_large_for_a_start_is_shown_in_part_and_then_whole(
    stadium: Stadium,
) -> None:
    """An update has more room than a start: what had to be left out comes with the token."""
    fixture = await stadium.match()
    stadium.contents[fixture.match_id] |= {"need": "n" * 1_500, "result": "r" * 1_500}
    follow, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await stadium.runs(instance, fixture, phone)
    [started], [updated] = stadium.pushed(phone.start_token), stadium.pushed(token)
    assert {"need", "result"} & started["content-state"].keys() == {"result"}
    assert {"need", "result"} <= updated["content-state"].keys()
    assert max(len(seen.payload) for seen in stadium.apple.sim.log.entries) <= 4096


async def test_an_activity_that_the_app_began_by_itself_is_registered_like_the_others(
    stadium: Stadium,
) -> None:
    """There was no start from here, so it is shown how things stand."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture, team_id="1")
    token = await stadium.runs(stadium.instance(), fixture, phone)
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.update_token, activity.team_id) == (ACTIVE, token, "1")
    assert [aps["content-state"]["view"] for aps in stadium.pushed(token)] == ["1"]


async def test_a_rotated_token_replaces_the_old_one_in_place(stadium: Stadium) -> None:
    """The same record, the new token, and no push for it; the word that the old one is gone comes too late."""
    fixture = await stadium.match()
    follow, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    old = await stadium.runs(instance, fixture, phone)
    before = await stadium.shown(fixture, phone)
    await stadium.clock.advance(5)
    new = await stadium.runs(instance, fixture, phone)
    after = await stadium.shown(fixture, phone)
    assert before is not None
    assert after == replace(before, update_token=new, updated_at=stadium.clock.milliseconds())
    target = PushTarget(
        match_id=fixture.match_id,
        user_id=phone.user_id,
        device_id=phone.device_id,
        team_id=NEUTRAL,
        update_token=old,
    )
    assert not await instance.activities.on_token_invalid(target)
    assert await stadium.status(fixture, phone) is ACTIVE
    assert stadium.events(new) == []


async def test_swiping_it_away_ends_it_and_unfollows(stadium: Stadium) -> None:
    """On the other device it is taken away; on this one it is gone already.

    The same again is no error.
    """
    fixture = await stadium.match()
    follow, [phone, tablet] = await stadium.follower(fixture, 2)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    mine, other = (
        await stadium.runs(instance, fixture, phone),
        await stadium.runs(instance, fixture, tablet),
    )
    for _ in range(2):
        await instance.activities.dismiss(fixture.match_id, phone.user_id, phone.device_id)
    shown = [await stadium.shown(fixture, each) for each in (phone, tablet)]
    assert [each and each.end_reason for each in shown] == [
        EndReason.USER_DISMISSED,
        EndReason.USER_UNFOLLOW,
    ]
    assert (stadium.events(mine), stadium.events(other)) == ([], ["end"])
    assert (
        await stadium.follows.get(fixture.match_id, phone.user_id, stadium.clock.seconds()) is None
    )
    await stadium.clock.advance(600)
    await instance.orchestrator.run()
    assert stadium.events(phone.start_token) == ["start"]


async def test_an_unfollow_takes_the_match_off_all_devices(stadium: Stadium) -> None:
    """At once, subscriptions of the person included, and nobody else's."""
    fixture = await stadium.match()
    follow, [phone, tablet] = await stadium.follower(fixture, 2)
    stranger, [other] = await stadium.follower(fixture)
    instance = stadium.instance()
    for each in (follow, stranger):
        await instance.activities.on_followed(fixture, each)
    tokens = [await stadium.runs(instance, fixture, each) for each in (phone, other)]
    subscribed = stadium.update_token(tablet)
    now = stadium.clock.milliseconds()
    await stadium.subscriptions.register(
        made_up.subscription(
            fixture.match_id,
            user_id=follow.user_id,
            push_token=subscribed,
            expires_at=now // 1000 + 1000,
        )
    )
    await stadium.follows.unfollow(fixture.match_id, follow.user_id, now // 1000)
    for _ in range(2):
        await instance.activities.on_unfollowed(
            fixture.match_id, follow.user_id, EndReason.USER_UNFOLLOW
        )
    assert [stadium.events(token) for token in (*tokens, subscribed)] == [["end"], [], ["end"]]
    [aps] = stadium.pushed(tokens[0])
    assert aps["dismissal-date"] < aps["timestamp"]
    shown = [await stadium.shown(fixture, each) for each in (phone, tablet)]
    assert [each and (each.status, each.end_reason, each.update_token) for each in shown] == [
        (ENDED, EndReason.USER_UNFOLLOW, None)
    ] * 2
    assert [
        each async for each in stadium.subscriptions.of_match(fixture.match_id, now // 1000)
    ] == []


async def test_who_follows_again_is_started_again(stadium: Stadium) -> None:
    """Whatever had ended it before."""
    fixture = await stadium.match()
    follow, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    await stadium.runs(instance, fixture, phone)
    await instance.activities.dismiss(fixture.match_id, phone.user_id, phone.device_id)
    await stadium.follows.follow(follow)
    await instance.activities.on_followed(fixture, follow)
    assert stadium.events(phone.start_token) == ["start", "start"]
    assert await stadium.status(fixture, phone) is PENDING


@pytest.mark.parametrize("why", ["unfollowed", "over", "ended"])
async def test_a_token_that_comes_too_late_is_told_that_it_is_over(
    stadium: Stadium, why: str
) -> None:
    """The start was on its way when it ended: the app is refused, and the screen is cleared."""
    fixture = await stadium.match()
    follow, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    if why == "unfollowed":
        await stadium.follows.unfollow(fixture.match_id, follow.user_id, stadium.clock.seconds())
    elif why == "over":
        fixture = replace(fixture, status=MatchStatus.FINISHED)
    else:
        activity = await stadium.shown(fixture, phone)
        assert activity is not None
        await stadium.activities.end(activity, EndReason.MATCH_END, stadium.clock.milliseconds())
    token = stadium.update_token(phone)
    with pytest.raises(Conflict, match="has ended") as refused:
        await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
    assert refused.value.code == "activity_ended"
    assert stadium.events(token) == ["end"]
    assert await stadium.status(fixture, phone) is not ACTIVE


async def test_changing_sides_turns_what_is_shown(stadium: Stadium) -> None:
    """At once, without a new start, and for all pushes from then on."""
    fixture = await stadium.match()
    follow, [phone, waiting] = await stadium.follower(fixture, 2)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await stadium.runs(instance, fixture, phone)
    await instance.activities.on_followed(fixture, replace(follow, team_id="2"))
    assert [(aps["event"], aps["content-state"]["view"]) for aps in stadium.pushed(token)] == [
        ("update", "2")
    ]
    shown = [await stadium.shown(fixture, each) for each in (phone, waiting)]
    assert [each and (each.status, each.team_id) for each in shown] == [
        (ACTIVE, "2"),
        (PENDING, "2"),
    ]
    assert stadium.events(waiting.start_token) == ["start"]


async def test_an_update_that_finds_no_one_ends_the_activity(stadium: Stadium) -> None:
    """The token was dead when it was handed in: it is started again in the next cycle."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture)
    token = stadium.update_token(phone)
    stadium.apple.sim.devices.retire(token)
    instance = stadium.instance()
    await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.end_reason) == (ENDED, EndReason.TOKEN_INVALID)
    await stadium.clock.advance(30)
    await instance.orchestrator.run()
    assert stadium.events(phone.start_token) == ["start"]


async def test_a_push_service_that_does_not_answer_keeps_nobody_waiting(stadium: Stadium) -> None:
    """The unfollow is done, the device is told later by the orchestrator."""
    fixture = await stadium.match()
    follow, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await stadium.runs(instance, fixture, phone)
    stadium.apple.sim.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None)
    )
    await stadium.follows.unfollow(fixture.match_id, follow.user_id, stadium.clock.seconds())
    unfollowing = instance.activities.on_unfollowed(
        fixture.match_id, follow.user_id, EndReason.USER_UNFOLLOW
    )
    await stadium.while_time_passes(unfollowing)
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.update_token) == (ENDED, token)
    stadium.apple.sim.faults.clear()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    # Once, or twice if the one that was given up had been on its way.
    assert set(stadium.events(token)) == {"end"}
