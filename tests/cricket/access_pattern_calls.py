"""Calls every access pattern with all its operations, to compare them with the declarations."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from tally.cricket.model.events import AlertChoice, EventKind, KeyEvent
from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    MatchTimeline,
    NotificationKind,
    QuotaWindow,
    TeamFollow,
    display_key,
    format_start_time,
)
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.deleted_follows import DeletedFollowRepository
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.key_events import DisplayLog, KeyEventLog
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.locks import LockRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.request_windows import QuotaWindowRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.cricket.repository.timelines import TimelineRepository
from tally.store.change_logs import ChangeLog
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW


@asynccontextmanager
async def _changes(log: ChangeLog, partition: str) -> AsyncIterator[None]:
    """Replay and follow the changes that the body makes."""
    start = (await log.read(partition, None, 1)).position
    yield
    assert (await log.read(partition, start, 10)).changes
    async with aclosing(log.follow(start)) as changes:
        await anext(changes)


async def call_all_access_patterns(store: Store) -> None:
    """Call the access patterns of all tables."""
    for tour in (
        _fixtures,
        _reference,
        _devices,
        _followers,
        _notifications_and_locks,
        _states,
        _fixture_cache,
        _activities,
        _matches,
        _request_windows,
    ):
        await tour(store)


async def _fixtures(store: Store) -> None:
    fixtures = FixtureRepository(store)
    fixture = factories.fixture(replay_of="1", followers_pending="1")
    await fixtures.write_batch([fixture])
    await fixtures.get(fixture.match_id)
    await fixtures.get_many([fixture.match_id])
    await fixtures.by_date(fixture.league_code, fixture.start_time, fixture.start_time, 10)
    await fixtures.starting_soon([fixture.league_code], fixture.start_time, fixture.start_time)
    await fixtures.update(fixture.match_id, live_updated_at=MOMENT)
    await fixtures.live()
    await fixtures.archive(fixture.match_id, MOMENT)
    await fixtures.by_league(fixture.league_id, 10)
    await fixtures.pending(1_000)
    await fixtures.record_followers(fixture, None)
    await fixtures.delete_replay(fixture.match_id)


async def _reference(store: Store) -> None:
    teams, seasons, leagues = (
        TeamRepository(store),
        TeamSeasonRepository(store),
        LeagueRepository(store),
    )
    team, season, league = factories.team(), factories.team_season("9"), factories.league()
    await teams.write_batch([team])
    await teams.get(team.team_id)
    await teams.all()
    await teams.update(team.team_id, color="#ffffff")
    await seasons.write_batch([season])
    await seasons.list_by_season("9")
    await leagues.put(league)
    await leagues.get(league.league_id)
    await leagues.all()
    await leagues.active()
    await leagues.update(league.league_id, active=False)
    await leagues.delete(league.league_id)


async def _devices(store: Store) -> None:
    devices = UserDeviceRepository(store)
    phone = factories.device(factories.name("user"))
    await devices.register(phone, is_only_one=False)
    phone = await devices.register(
        replace(phone, device_token="another", updated_at=MOMENT + 1), is_only_one=True
    )
    await devices.get(phone.user_id, NOW)
    await devices.list_by_user(phone.user_id, NOW)
    updated = await devices.update_push_to_start(phone, "start", MOMENT, NOW + DAY)
    assert updated is not None
    await devices.claim_restart(updated, MOMENT)
    await devices.owners_of_token(updated.device_token)
    await devices.owners_of_id(updated.device_id)
    await devices.owners_of_start_token("start")
    await devices.remove_push_to_start(updated)
    await devices.delete(phone.user_id, phone.device_token, NOW)
    phone = await devices.register(phone, is_only_one=False)
    assert await devices.hand_over((phone.user_id, phone.device_token), phone.updated_at)


async def _followers(store: Store) -> None:
    follows, subscriptions = FollowRepository(store), ActivitySubscriptionRepository(store)
    match_id, user = factories.number(), factories.name("user")
    for follow in (factories.follow(match_id, user_id=user), factories.follow(match_id)):
        await follows.follow(follow)
    await follows.get(match_id, user, NOW)
    assert len([item async for item in follows.list_by_match(match_id, NOW)]) == 2
    await follows.list_by_user(user, NOW, 10)
    await follows.change(match_id, user, NOW, team_id="1")
    await follows.move(match_id, NOW + 5 * DAY, NOW)
    ended = await follows.unfollow(match_id, user, NOW)
    assert ended is not None
    assert await follows.restore(ended)
    await follows.unfollow(match_id, user, NOW)
    await _team_followers(store, match_id, user)
    await follows.remove_all(match_id)
    deleted_follows = DeletedFollowRepository(store)
    await deleted_follows.keep([ended, replace(ended, user_id="another")], NOW)
    assert [page async for page in deleted_follows.pages(match_id, NOW)]
    assert await deleted_follows.match_ids(user) == [match_id]
    await deleted_follows.remove(match_id, user)
    await deleted_follows.remove_all(match_id)
    for token in ("a", "b", "c"):
        await subscriptions.register(
            factories.subscription(match_id, user_id=user, push_token=token)
        )
    await subscriptions.register(factories.subscription(match_id))
    assert (
        len([subscription async for subscription in subscriptions.list_by_match(match_id, NOW)])
        == 4
    )
    assert len(await subscriptions.list_by_owner(user)) == 3
    await subscriptions.change_alerts(match_id, user, AlertChoice.RESULT)
    await subscriptions.remove(match_id, "a", user)
    await subscriptions.remove_by_user(match_id, user)
    await subscriptions.remove_all(match_id)


async def _team_followers(store: Store, match_id: str, user: str) -> None:
    follows = FollowRepository(store)
    await follows.follow_team(TeamFollow(team_id="1", user_id=user, created_at=MOMENT))
    assert await follows.get_team("1", user)
    assert user in await follows.list_team_followers("1", "", 1_000)
    assert len(await follows.list_teams(user)) == 1
    follow = factories.follow(match_id, user_id=user, via_team_id="1")
    assert await follows.add_for_team([follow]) == [follow]
    assert await follows.add_for_team([follow]) == []
    assert await follows.assign_to_team(follow, "2")
    assert await follows.remove_for_team(replace(follow, via_team_id="2"))
    await follows.decline(follow)
    await follows.unfollow_team("1", user)
    await follows.remove_by_user(user)


async def _notifications_and_locks(store: Store) -> None:
    notifications, locks = NotificationRepository(store), LockRepository(store)
    notice = factories.notice(factories.number())
    await notifications.mark_sent(notice)
    await notifications.was_sent(notice.match_id, notice.user_id, NotificationKind.PREMATCH, NOW)
    await notifications.remove([notice.match_id], notice.user_id)
    name = factories.name("match")
    await locks.acquire(name, "me", MOMENT, MOMENT + 10_000)
    await locks.extend(name, "me", MOMENT + 20_000)
    await locks.release(name, "me")


async def _states(store: Store) -> None:
    hashes, displays, progress = (
        StateHashRepository(store),
        DisplayCacheRepository(store),
        ProcessingRepository(store),
    )
    state, display, processing = (
        factories.state_hash(),
        factories.cached_display(),
        factories.processing(),
    )
    await hashes.put(state)
    await hashes.get(state.match_id, state.team_id)
    await hashes.delete(state.match_id, state.team_id)
    key = display_key(display.match_id, display.team_id)
    async with _changes(DisplayLog(store), key):
        await displays.put(display)
    await displays.get(display.match_id, display.team_id, NOW)
    await progress.put(processing)
    await progress.get(processing.match_id, NOW)
    await progress.hydrate([processing.match_id], NOW)
    await progress.hydrate(None, NOW)


async def _fixture_cache(store: Store) -> None:
    cache = FixtureCacheRepository(store)
    near, far = (
        factories.cached_fixture(),
        factories.cached_fixture(starting_at=format_start_time(MOMENT + 30 * DAY * 1000)),
    )
    for _ in range(2):
        await cache.put_batch([near, far], MOMENT)
    await cache.update_enrichment(near.match_id, {"league": "Cup"}, MOMENT)
    await cache.put(near)
    await cache.get(near.match_id, NOW)
    await cache.get_many([near.match_id, far.match_id], NOW)
    await cache.by_league(near.league_id, near.starting_at, near.starting_at, NOW)
    assert [item async for item in cache.all(NOW)]


async def _activities(store: Store) -> None:
    activities = LiveActivityRepository(store)
    made = factories.activity(factories.number())
    await activities.create(made)
    await activities.get(made.match_id, made.user_id, made.device_id, MOMENT)
    await activities.claim_start(made, replace(made, starts=1, channel_id="channel"))
    await activities.release_start(replace(made, starts=1), None)
    await activities.confirm(made.match_id, made.user_id, made.device_id, MOMENT)
    await activities.mark_missing(made.match_id, made.user_id, made.device_id, MOMENT)
    await activities.activate(replace(made, status=ActivityStatus.ACTIVE, update_token="token"))
    assert [item async for page in activities.targets(made.match_id, MOMENT) for item in page]
    assert [activity async for activity in activities.list_by_match(made.match_id, MOMENT)]
    await activities.list_by_user(made.match_id, made.user_id, MOMENT)
    await activities.change_follow(made, "1", AlertChoice.ALL)
    await activities.end(made, EndReason.MATCH_END, MOMENT)
    await activities.mark_end_delivered(replace(made, update_token="token"))
    await activities.list_by_owner(made.user_id)
    await activities.delete_ended(made)


async def _matches(store: Store) -> None:
    matches = ActiveMatchRepository(store)
    active_match = factories.active_match()
    await matches.create(active_match)
    await matches.get(active_match.match_id)
    saved = await matches.save(active_match)
    assert saved is not None
    event = KeyEvent(kind=EventKind.FOUR, innings=1)
    async with _changes(KeyEventLog(store), saved.match_id):
        assert await matches.save_with_events(saved, [event], NOW + DAY)
    await matches.renew(active_match.match_id, active_match.owner, MOMENT)
    await matches.take_over(active_match.match_id, "another", MOMENT, MOMENT)
    await matches.set_channel(active_match.match_id, "channel")
    await matches.list_unfinished()
    await matches.end(active_match.match_id, MOMENT, NOW)


async def _request_windows(store: Store) -> None:
    windows = QuotaWindowRepository(store)
    resource, window = factories.name("resource"), QuotaWindow(10, MOMENT)
    assert await windows.replace(resource, None, window)
    assert await windows.get(resource) == window
    timelines = TimelineRepository(store)
    timeline = MatchTimeline(factories.number(), "[]", NOW + DAY)
    await timelines.put(timeline)
    assert await timelines.get(timeline.match_id, NOW) == timeline
