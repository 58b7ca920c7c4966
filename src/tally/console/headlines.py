"""What each backend's tile says first: a figure that a newcomer understands, and that moves.

Each is made of what the backend knows anyway, or of a look with a bound; none goes over all that
there is.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.counter_rates import CounterRates
from tally.console.formatting import format_rate, format_span, pluralize
from tally.console.mint_counter import MintCounter
from tally.console.people import athletes_of
from tally.cricket.api.render import match_body
from tally.cricket.model.feed import MatchStatus
from tally.cricket.service.queries.matches import MatchView, Wanted
from tally.cricket.wiring.backend import Cricket
from tally.devices.wiring import Devices
from tally.errors import NotFound
from tally.kit.clock import Clock, rfc3339
from tally.scoreboard.wiring import Scoreboard

# Lock Screens are counted up to here, which is a page or two.
MAX_SCREENS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure, what it is a figure of, and a few words more; `worry` says what does not work as it should."""

    figure: str
    words: str
    details: tuple[str, ...] = ()
    worry: str = ""


HeadlineQuery: TypeAlias = Callable[[], Awaitable[Headline]]


def headline_queries(context: ConsoleContext, rates: CounterRates) -> dict[str, HeadlineQuery]:
    """How to ask each backend that runs here."""
    found: dict[str, HeadlineQuery] = {}
    cricket, collect = context.backend("cricket", Cricket), context.backend("collect", Collect)
    scoreboard, devices = (
        context.backend("scoreboard", Scoreboard),
        context.backend("devices", Devices),
    )
    if cricket is not None:
        found["cricket"] = lambda: of_cricket(cricket, rates, context.clock)
    if collect is not None:
        found["collect"] = MintHeadline(collect, rates, lambda: athletes_of(context)).ask
    if scoreboard is not None:
        found["scoreboard"] = lambda: of_scoreboard(scoreboard)
    if devices is not None:
        found["devices"] = lambda: of_devices(devices, rates)
    return found


async def of_cricket(cricket: Cricket, rates: CounterRates, clock: Clock) -> Headline:
    live = await cricket.reading.matches.live()
    if not live:
        return Headline("0", "matches live", await _next_match(cricket, clock))
    screens = await _screens(cricket, live, clock.milliseconds())
    details = (
        _score(live[0]),
        f"on {screens} Lock Screens",
        f"{format_rate(rates.rate('pushes'))} pushes/s",
    )
    worry = ""
    if not cricket.apns.is_configured:
        worry = "no key for pushes"
    elif any(match_body(view).is_stale for view in live):
        worry = "SportMonks is silent"
    return Headline(
        str(len(live)), pluralize(len(live), "match live", "matches live"), details, worry
    )


async def _next_match(cricket: Cricket, clock: Clock) -> tuple[str, ...]:
    wanted = Wanted(since=rfc3339(clock.now()), status=MatchStatus.NOT_STARTED)
    found, _ = await cricket.reading.matches.page(wanted, 1, None)
    if not found:
        return ("none is planned",)
    body = match_body(found[0])
    wait = (datetime.fromisoformat(body.start_time) - clock.now()).total_seconds()
    return (f"next in {format_span(wait)}: {' v '.join(team.name for team in body.teams)}",)


async def _screens(cricket: Cricket, live: list[MatchView], now: int) -> str:
    count = 0
    for view in live:
        async with aclosing(cricket.tables.activities.targets(view.fixture.match_id, now)) as pages:
            async for page in pages:
                count += len(page)
                if count >= MAX_SCREENS:
                    return f"more than {MAX_SCREENS:,}"
    return str(count)


def _score(view: MatchView) -> str:
    """The side that bats, as the last innings has it; or who will."""
    teams = match_body(view).teams
    feed = view.heard.feed if view.heard is not None else None
    batting = feed.innings[-1].team_id if feed is not None and feed.innings else None
    for team in teams:
        if team.team_id == batting and team.scores:
            return f"{team.name} {team.scores[-1]}"
    return " v ".join(team.name for team in teams)


class MintHeadline:
    """Collect's headline.

    Whose part it was is looked up once for each part; a demo knows names, nobody else does.
    """

    def __init__(
        self, collect: Collect, rates: CounterRates, names: Callable[[], dict[str, str]]
    ) -> None:
        self._collect = collect
        self._rates = rates
        self._names = names
        self._minted = MintCounter(collect.handlers.audit_search)
        self._told: tuple[object, str] = (None, "none yet")

    async def ask(self) -> Headline:
        await self._minted.look()
        if self._minted.latest is not None and self._told[0] != self._minted.latest:
            self._told = (self._minted.latest, await self._latest())
        figure = f"{self._minted.count:,}{'+' if self._minted.is_more else ''}"
        workouts = round(self._rates.total("workouts"))
        details = (
            self._told[1],
            f"{workouts:,} {pluralize(workouts, 'workout', 'workouts')} since the start",
        )
        return Headline(
            figure, f"{pluralize(self._minted.count, 'part', 'parts')} minted this month", details
        )

    async def _latest(self) -> str:
        event = self._minted.latest
        if event is None:
            return "none yet"
        who = self._names().get(event.user_id, "somebody")
        try:
            held = await self._collect.handlers.milestones.get(
                event.user_id, str(event.facts["milestone"])
            )
            model = await self._collect.handlers.shelf.get(held.milestone.model_id)
        except NotFound:  # the account was deleted since
            return "the latest is gone"
        part = next(
            (part.name for part in model.parts if part.index == event.facts["part"]), "a part"
        )
        return f"latest: {who}, {part} of {model.meta.name}"


async def of_scoreboard(scoreboard: Scoreboard) -> Headline:
    board = await scoreboard.handlers.leaderboard.top(1)
    watching = scoreboard.handlers.slots.open
    worry = "Redis is away" if scoreboard.handlers.leaderboard.guard.is_failing else ""
    if not board.standings:
        return Headline("0", "players", ("nobody has signed up yet",), worry)
    first = board.standings[0]
    players = f"{board.total_players:,} {pluralize(board.total_players, 'player', 'players')}"
    watchers = f"{watching} watch the stream" if watching else "nobody watches the stream"
    return Headline(
        f"{first.score:,}",
        "points in the lead",
        (f"{first.username} is first of {players}", watchers),
        worry,
    )


async def of_devices(devices: Devices, rates: CounterRates) -> Headline:
    awake = devices.handlers.registry.noted.count()
    details = (
        f"{format_rate(rates.rate('readings'))} readings/s",
        f"{rates.total('readings'):,.0f} stored since the start",
    )
    return Headline(f"{awake:,}", f"{pluralize(awake, 'board', 'boards')} awake", details)
