"""Calls every access pattern with all its operations, to compare them with the declarations."""

from dataclasses import replace

from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    NotificationKind,
    format_start_time,
)
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.locks import LockRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW


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
    ):
        await tour(store)


async def _fixtures(store: Store) -> None:
    fixtures = FixtureRepository(store)
    fixture = factories.fixture(replay_of="1")
    await fixtures.write_batch([fixture])
    await fixtures.get(fixture.match_id)
    await fixtures.get_many([fixture.match_id])
    await fixtures.by_date(fixture.league_code, fixture.start_time, fixture.start_time, 10)
    await fixtures.starting_soon([fixture.league_code], fixture.start_time, fixture.start_time)
    await fixtures.update(fixture.match_id, live_updated_at=MOMENT)
    await fixtures.live()
    await fixtures.archive(fixture.match_id, MOMENT)
    await fixtures.by_league(fixture.league_id, 10)
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
    await devices.remove_push_to_start(updated)
    await devices.delete(phone.user_id, phone.device_token, NOW)


async def _followers(store: Store) -> None:
    follows, subscriptions = FollowRepository(store), ActivitySubscriptionRepository(store)
    match_id, user = factories.number(), factories.name("user")
    for follow in (factories.follow(match_id, user_id=user), factories.follow(match_id)):
        await follows.follow(follow)
    await follows.get(match_id, user, NOW)
    assert len([item async for item in follows.list_by_match(match_id, NOW)]) == 2
    await follows.list_by_user(user, NOW, 10)
    await follows.change_team(match_id, user, "1", NOW)
    await follows.unfollow(match_id, user, NOW)
    await follows.remove_all(match_id)
    for token in ("a", "b", "c"):
        await subscriptions.register(
            factories.subscription(match_id, user_id=user, push_token=token)
        )
    await subscriptions.register(factories.subscription(match_id))
    assert (
        len([subscription async for subscription in subscriptions.list_by_match(match_id, NOW)])
        == 4
    )
    await subscriptions.remove(match_id, "a", user)
    await subscriptions.remove_by_user(match_id, user)
    await subscriptions.remove_all(match_id)


async def _notifications_and_locks(store: Store) -> None:
    notifications, locks = NotificationRepository(store), LockRepository(store)
    notice = factories.notice(factories.number())
    await notifications.mark_sent(notice)
    await notifications.was_sent(notice.match_id, notice.user_id, NotificationKind.PREMATCH, NOW)
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
    await cache.by_league(near.league_id, NOW)
    assert [item async for item in cache.all(NOW)]


async def _activities(store: Store) -> None:
    activities = LiveActivityRepository(store)
    made = factories.activity(factories.number())
    await activities.create(made)
    await activities.get(made.match_id, made.user_id, made.device_id, MOMENT)
    await activities.claim_start(made, MOMENT, None, "hash")
    await activities.activate(replace(made, status=ActivityStatus.ACTIVE, update_token="token"))
    assert [item async for page in activities.targets(made.match_id, MOMENT) for item in page]
    assert [activity async for activity in activities.list_by_match(made.match_id, MOMENT)]
    await activities.list_by_user(made.match_id, made.user_id, MOMENT)
    await activities.change_team(made, "1")
    await activities.end(made, EndReason.MATCH_END, MOMENT)
    await activities.mark_end_delivered(replace(made, update_token="token"))


async def _matches(store: Store) -> None:
    matches = ActiveMatchRepository(store)
    active_match = factories.active_match()
    await matches.create(active_match)
    await matches.get(active_match.match_id)
    await matches.save(active_match)
    await matches.renew(active_match.match_id, active_match.owner, MOMENT)
    await matches.take_over(active_match.match_id, "another", MOMENT, MOMENT)
    await matches.set_channel(active_match.match_id, "channel")
    await matches.list_unfinished()
    await matches.end(active_match.match_id, MOMENT, NOW)
