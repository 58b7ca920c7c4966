"""The headline of each backend's tile: one number that a newcomer understands.

Every query is bounded: it uses counters in memory or reads at most a few pages.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.counter_rates import CounterRates
from tally.console.formatting import format_duration, format_rate, format_span, pluralize
from tally.console.mint_counter import MintCounter
from tally.cricket.model.feed import MatchStatus
from tally.cricket.service.queries.matches import MatchFilter, MatchView
from tally.cricket.wiring.backend import Cricket
from tally.devices.wiring import Devices
from tally.errors import NotFound
from tally.kit.clock import Clock, rfc3339
from tally.scoreboard.wiring import Scoreboard

# Stop counting Lock Screens here, after a page or two.
MAX_SCREENS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Headline:
    """A number with its unit and details; `problem` says what does not work."""

    value: str
    unit: str
    details: tuple[str, ...] = ()
    problem: str = ""


HeadlineQuery: TypeAlias = Callable[[], Awaitable[Headline]]


def headline_queries(context: ConsoleContext, rates: CounterRates) -> dict[str, HeadlineQuery]:
    """Return the headline query of each backend that this instance runs."""
    queries: dict[str, HeadlineQuery] = {}
    cricket, collect = context.backend("cricket", Cricket), context.backend("collect", Collect)
    scoreboard, devices = (
        context.backend("scoreboard", Scoreboard),
        context.backend("devices", Devices),
    )
    if cricket is not None:
        queries["cricket"] = lambda: cricket_headline(cricket, rates, context.clock)
    if collect is not None:
        queries["collect"] = MintHeadline(collect, rates, context.athlete_names).query
    if scoreboard is not None:
        queries["scoreboard"] = lambda: scoreboard_headline(scoreboard)
    if devices is not None:
        queries["devices"] = lambda: devices_headline(devices, rates)
    return queries


async def cricket_headline(cricket: Cricket, rates: CounterRates, clock: Clock) -> Headline:
    live = await cricket.services.queries.matches.live()
    if not live:
        return Headline("0", "matches live", await _next_match(cricket, clock))
    screens = await _screens(cricket, live)
    details = (
        _score(live[0]),
        f"on {screens} Lock Screens",
        f"{format_rate(rates.rate('pushes'))} pushes/s",
        *_feed_details(cricket),
    )
    problem = ""
    if not cricket.push_gateway.is_configured:
        problem = "no APNs key"
    elif any(view.is_stale for view in live):
        problem = "SportMonks has not responded for 60 s"
    return Headline(
        str(len(live)), pluralize(len(live), "match live", "matches live"), details, problem
    )


def _feed_details(cricket: Cricket) -> tuple[str, ...]:
    """Describe the feed and the activities; without what this instance does not know."""
    feed = cricket.live.poller.metrics
    age, to_push = feed.feed_age(), feed.last_to_push
    confirmed = cricket.live.orchestrator.sweeper.counts.confirmed_ratio()
    details = [] if math.isnan(age) else [f"scores polled {age:.0f} s ago"]
    if not math.isnan(to_push):
        details.append(f"last update pushed in {format_duration(to_push)}")
    if not math.isnan(confirmed):
        details.append(f"{confirmed:.0%} of Live Activities confirmed")
    return tuple(details)


async def _next_match(cricket: Cricket, clock: Clock) -> tuple[str, ...]:
    upcoming = MatchFilter(since=rfc3339(clock.now()), status=MatchStatus.NOT_STARTED)
    matches, _ = await cricket.services.queries.matches.page(upcoming, 1, None)
    if not matches:
        return ("no match scheduled",)
    match = matches[0]
    wait = (datetime.fromisoformat(match.fixture.start_time) - clock.now()).total_seconds()
    return (f"next in {format_span(wait)}: {' v '.join(team.name for team in match.teams)}",)


async def _screens(cricket: Cricket, live: list[MatchView]) -> str:
    count = await cricket.services.queries.admin.count_active_activities(
        [view.fixture.match_id for view in live], MAX_SCREENS
    )
    return f"more than {MAX_SCREENS:,}" if count >= MAX_SCREENS else str(count)


def _score(view: MatchView) -> str:
    """Format the score of the batting team, or the team names before the first innings."""
    teams = view.teams
    feed = view.cached.feed if view.cached is not None else None
    batting = feed.innings[-1].team_id if feed is not None and feed.innings else None
    for team in teams:
        if team.team_id == batting and team.scores:
            return f"{team.name} {team.scores[-1]}"
    return " v ".join(team.name for team in teams)


class MintHeadline:
    """Collect's headline; resolves each latest part once. Names are known only in the demo."""

    def __init__(
        self, collect: Collect, rates: CounterRates, names: Callable[[], dict[str, str]]
    ) -> None:
        self._collect = collect
        self._rates = rates
        self._names = names
        self._mints = MintCounter(collect.services.audit_search)
        self._latest_mint: tuple[object, str] = (None, "none yet")

    async def query(self) -> Headline:
        await self._mints.update()
        if self._mints.latest is not None and self._latest_mint[0] != self._mints.latest:
            self._latest_mint = (self._mints.latest, await self._describe_latest())
        count = f"{self._mints.count:,}{'+' if self._mints.is_more else ''}"
        workouts = round(self._rates.total("workouts"))
        details = (
            self._latest_mint[1],
            f"{workouts:,} {pluralize(workouts, 'workout', 'workouts')} since start",
        )
        return Headline(
            count, f"{pluralize(self._mints.count, 'part', 'parts')} minted this month", details
        )

    async def _describe_latest(self) -> str:
        event = self._mints.latest
        if event is None:
            return "none yet"
        athlete = self._names().get(event.user_id, "an athlete")
        try:
            entry = await self._collect.services.milestones.get(
                event.user_id, str(event.facts["milestone"])
            )
            model = await self._collect.services.models.get(entry.milestone.model_id)
        except NotFound:  # The account has been deleted.
            return "latest: deleted account"
        part = next(
            (part.name for part in model.parts if part.index == event.facts["part"]), "a part"
        )
        return f"latest: {athlete}, {part} of {model.meta.name}"


async def scoreboard_headline(scoreboard: Scoreboard) -> Headline:
    board = await scoreboard.services.leaderboard.top(1)
    watching = scoreboard.services.broadcaster.viewer_count
    problem = "Redis unavailable" if scoreboard.services.leaderboard.breaker.is_failing else ""
    if not board.standings:
        return Headline("0", "players", ("no players yet",), problem)
    first = board.standings[0]
    players = f"{board.total_players:,} {pluralize(board.total_players, 'player', 'players')}"
    watchers = f"{watching} {pluralize(watching, 'viewer', 'viewers')}"
    return Headline(
        f"{first.score:,}",
        "top score",
        (f"{first.username} leads {players}", watchers),
        problem,
    )


async def devices_headline(devices: Devices, rates: CounterRates) -> Headline:
    awake = devices.services.devices.recently_seen.count()
    details = (
        f"{format_rate(rates.rate('readings'))} readings/s",
        f"{rates.total('readings'):,.0f} stored since start",
    )
    return Headline(f"{awake:,}", f"{pluralize(awake, 'device', 'devices')} active", details)
