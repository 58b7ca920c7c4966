"""The alert choice of a follow: which updates alert its devices, and how they reach them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tally.cricket.model.events import AlertChoice, EventKind
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.push import PushOutcome, PushResult
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.activities_harness import ActivitiesHarness
from tests.cricket.pipeline_fakes import DELIVERED, FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine
from tests.cricket.test_lifecycle_healing import channel_follower
from tests.cricket.test_lifecycle_notifications import alerts_on, upcoming_match
from tests.cricket.test_pipeline import make_feed, poll

ALL, MILESTONES, RESULT = AlertChoice
# The batter on strike has 48 runs.
FIFTY_NEXT = "6 6 6 6 6 . . . . . . . 6 6 6"


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("alerts")) as opened:
        yield opened


async def follow_with_each_choice(instance: PipelineInstance, match_id: str) -> list[str]:
    return [
        await instance.follow(match_id, factories.name(), alerts=choice) for choice in AlertChoice
    ]


def test_milestones_are_all_alerts_except_wickets() -> None:
    """The result is part of every choice."""
    alerting = {kind for kind in EventKind if kind.is_alert}
    included = {
        choice: {kind for kind in EventKind if choice.includes(kind)} for choice in AlertChoice
    }
    assert included == {
        ALL: alerting,
        MILESTONES: alerting - {EventKind.WICKET},
        RESULT: {EventKind.MATCH_END},
    }


async def test_an_event_alerts_only_the_devices_whose_choice_includes_it(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """The content and the number of updates are the same for everyone."""
    match_id = factories.number()
    tokens = await follow_with_each_choice(instance, match_id)
    await poll(instance, scores, match_id, "1")
    await poll(instance, scores, match_id, "1 W")
    for _ in range(2):  # A result counts when two polls agree.
        await poll(instance, scores, match_id, "1 W", MatchStatus.FINISHED)
    pushes = [gateway.pushes_to(token) for token in tokens]
    contents = [[push.content for push in received] for received in pushes]
    assert contents[0] == contents[1] == contents[2]
    alerts = [[push.alert is not None for push in received] for received in pushes]
    assert alerts == [[False, True, True], [False, False, True], [False, False, True]]
    priorities = [[push.priority for push in received] for received in pushes]
    assert priorities == [[5, 10, 10], [5, 5, 10], [5, 5, 10]]


async def test_a_milestone_alert_that_was_not_delivered_survives_a_later_wicket(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """A device gets the alert of its choice with the newest state."""
    match_id = factories.number()
    token_of_all, token_of_milestones, _ = await follow_with_each_choice(instance, match_id)
    await poll(instance, scores, match_id, FIFTY_NEXT)
    gateway.pushes.clear()
    gateway.respond = lambda _: PushResult(PushOutcome.RETRY, 503)
    scores.live_feeds[match_id] = make_feed(match_id, f"{FIFTY_NEXT} 6")
    await instance.poller.run()
    await clock.until_sleeping(2)
    scores.live_feeds[match_id] = make_feed(match_id, f"{FIFTY_NEXT} 6 W")
    gateway.respond = lambda _: DELIVERED
    await clock.advance(1)
    await instance.poll()
    (of_all,) = gateway.pushes_to(token_of_all)
    (of_milestones,) = gateway.pushes_to(token_of_milestones)
    assert of_all.content == of_milestones.content
    assert of_all.alert is not None
    assert of_milestones.alert is not None
    assert "wicket" in of_all.alert["title"].lower()
    assert "fifty" in of_milestones.alert["title"].lower()


async def test_a_milestone_that_a_wicket_outranks_alerts_followers_of_milestones(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """One poll can contain both; the content shows the wicket for everyone."""
    match_id = factories.number()
    tokens = await follow_with_each_choice(instance, match_id)
    await poll(instance, scores, match_id, FIFTY_NEXT)
    await poll(instance, scores, match_id, f"{FIFTY_NEXT} 6 W")
    latest = [gateway.latest_push_to(token) for token in tokens]
    assert latest[0].content == latest[1].content == latest[2].content
    titles = [None if push.alert is None else push.alert["title"].lower() for push in latest]
    assert [titles[0] is not None and "wicket" in titles[0], titles[2]] == [True, None]
    assert titles[1] is not None
    assert "fifty" in titles[1]


async def test_the_channel_serves_the_default_choice(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """A device with another choice gets the same update by its token."""
    match_id = factories.number()
    await poll(instance, scores, match_id, "1")
    await instance.repositories.matches.set_channel(match_id, "channel")
    await instance.follow(match_id, factories.name(), channel_id="channel", update_token=None)
    token = await instance.follow(match_id, factories.name(), alerts=RESULT)
    await poll(instance, scores, match_id, "1 W")
    [broadcast] = gateway.broadcasts
    [push] = gateway.pushes_to(token)
    assert (broadcast.alert is not None, push.alert) == (True, None)
    assert broadcast.content == push.content


async def test_a_choice_during_the_match_moves_an_activity_from_the_channel_to_a_token(
    harness: ActivitiesHarness,
) -> None:
    """It is started again once with its own token, which the default choice keeps later."""
    fixture = await harness.match()
    instances = [harness.instance(name, uses_channels=True) for name in ("one", "two")]
    phone = await channel_follower(harness, fixture, instances[0])
    await instances[0].activities.confirm(fixture, phone.user_id, phone.device_id)
    for alerts in (RESULT, ALL):
        now = harness.clock.seconds()
        follow = await harness.follows.change(fixture.match_id, phone.user_id, now, alerts=alerts)
        assert follow is not None
        await asyncio.gather(
            *(instance.activities.on_followed(fixture, follow) for instance in instances),
            *(instance.orchestrator.process(fixture.match_id) for instance in instances),
        )
        first, second = harness.pushed(phone.start_token)
        assert ("input-push-channel" in first, second["input-push-token"]) == (True, 1)
        token = await harness.register_activity(instances[1], fixture, phone)
        activity = await harness.activity(fixture, phone)
        assert activity is not None
        assert (activity.alerts, activity.update_token, activity.channel_id) == (
            alerts,
            token,
            None,
        )


async def test_followers_of_the_result_get_no_notification_before_the_match(
    harness: ActivitiesHarness,
) -> None:
    """Followers of milestones do."""
    fixture = await upcoming_match(harness)
    phones = []
    for alerts in AlertChoice:
        _, [phone] = await harness.follower(fixture)
        now = harness.clock.seconds()
        assert await harness.follows.change(fixture.match_id, phone.user_id, now, alerts=alerts)
        phones.append(phone)
    await harness.instance().prematch.run()
    notified = [len(alerts_on(harness, phone)) for phone in phones]
    assert notified == [1, 1, 0]
