"""The balls of a match as far as they are known, and how far they may be told of.

A poll may lack a ball that the next one has, bring one twice, or correct one. The book takes in
what each poll brings, by ball id, and releases balls in order: where one is missing (the numbers of
an over jump, or balls and scores do not add up), those after it wait for it, for a few polls. What
never comes is given up, and what comes later still is taken in as a correction. A ball that the
service has withdrawn is dropped as soon as its balls add up to its scores without it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed, Overs
from tally.cricket.model.laws import BALLS_PER_OVER

# Polls in which the same thing may be missing before it is given up.
PATIENCE: Final = 3


class Totals(NamedTuple):
    """What balls add up to, or scores say."""

    overs: Overs
    runs: int
    wickets: int


class BallLog(msgspec.Struct, frozen=True):
    """The balls of a match in order of their ids; those up to `released` are told of.

    `missing` names what the balls after it wait for, `polls` how often it was missing, and
    `given_up` what is not waited for.
    """

    balls: tuple[Ball, ...] = ()
    released: int = 0
    missing: str = ""
    polls: int = 0
    given_up: frozenset[str] = frozenset()

    @property
    def told(self) -> tuple[Ball, ...]:
        """The balls that are released."""
        return tuple(ball for ball in self.balls if ball.id <= self.released)

    def is_settled(self, innings: InningsFeed) -> bool:
        """Balls and scores of the innings agree, or nothing more is expected of its balls."""
        mine = [ball for ball in self.balls if ball.innings == innings.number]
        if mine and mine[-1].id > self.released:
            return False
        want = _wanted(innings, mine)
        return want is None or want in self.given_up


def merge_poll(book: BallLog, feed: MatchFeed, *, is_final: bool = False) -> BallLog:
    """The book after one more poll.

    With `is_final` nothing is waited for: there will be no other poll.
    """
    if feed.balls is None:
        return book
    return _released(
        msgspec.structs.replace(book, balls=_merged(book.balls, feed)),
        feed.innings,
        is_final=is_final,
    )


def encode(book: BallLog) -> str:
    """As JSON text, for the store."""
    return msgspec.json.encode(book).decode()


def decode(text: str) -> BallLog:
    return msgspec.json.decode(text, type=BallLog)


def innings_totals(balls: Iterable[Ball]) -> dict[int, Totals]:
    """By innings: what these balls, in order, add up to."""
    found: dict[int, list[int]] = {}
    for ball in balls:
        sums = found.setdefault(ball.innings, [ball.over, 0, 0, 0])
        if ball.over != sums[0]:
            sums[0], sums[1] = ball.over, 0
        sums[1] += ball.is_legal
        sums[2] += ball.runs_total
        sums[3] += ball.wicket is not None and ball.wicket.counts
    return {
        number: Totals(_overs(over, legal), runs, wickets)
        for number, (over, legal, runs, wickets) in found.items()
    }


def _overs(over: int, legal: int) -> Overs:
    return Overs(over + 1, 0) if legal >= BALLS_PER_OVER else Overs(over, legal)


def _merged(known: tuple[Ball, ...], feed: MatchFeed) -> tuple[Ball, ...]:
    brought = {ball.id: ball for ball in feed.balls or ()}
    in_order = tuple(brought[identity] for identity in sorted(brought))
    if in_order and _adds_up(in_order, feed.innings):
        return in_order
    merged = {ball.id: ball for ball in known}
    for identity, ball in brought.items():
        before = merged.get(identity)
        # A poll that was answered from an older cache must not undo a correction.
        if before is None or not ball.updated_at or ball.updated_at >= before.updated_at:
            merged[identity] = ball
    return tuple(merged[identity] for identity in sorted(merged))


def _adds_up(balls: Sequence[Ball], innings: Sequence[InningsFeed]) -> bool:
    totals = innings_totals(balls)
    scores = {
        each.number: Totals(each.overs, each.runs, each.wickets)
        for each in innings
        if each.overs > (0, 0) or each.runs
    }
    return totals == scores and not any(_jumps(*pair) for pair in _pairs(balls))


def _pairs(balls: Sequence[Ball]) -> Iterator[tuple[Ball | None, Ball]]:
    """Each ball with the one before it in its innings."""
    before: Ball | None = None
    for ball in balls:
        if ball.is_delivery:
            yield (before if before is not None and before.innings == ball.innings else None), ball
            before = ball


def _released(book: BallLog, innings: Sequence[InningsFeed], *, is_final: bool) -> BallLog:
    wants = list(_wants(book, innings))
    # Extras that no ball has (penalty runs between overs) stay missing; the rest matters only while
    # it is missing.
    given_up = {
        want
        for want in book.given_up
        if want.startswith("extra") or any(want == each for _, each in wants)
    }
    held_from, missing, polls = _beyond(book), "", 0
    for waits_from, want in wants:
        if want in given_up:
            continue
        polls = book.polls + 1 if want == book.missing else 1
        if not is_final and polls <= PATIENCE:
            held_from, missing = waits_from, want
            break
        given_up.add(want)
    released = max((ball.id for ball in book.balls if ball.id < held_from), default=0)
    return BallLog(
        book.balls,
        max(book.released, released),
        missing,
        polls if missing else 0,
        frozenset(given_up),
    )


def _beyond(book: BallLog) -> int:
    """An id after the last ball."""
    return book.balls[-1].id + 1 if book.balls else 1


def _wants(book: BallLog, innings: Sequence[InningsFeed]) -> Iterator[tuple[int, str]]:
    """What is missing, in order of play: the id of the first ball that waits for it (beyond all if none does), and its name."""
    scores = {each.number: each for each in innings}
    for number in sorted({*scores, *(ball.innings for ball in book.balls)}):
        mine = [ball for ball in book.balls if ball.innings == number]
        yield from _gaps(mine, book.released)
        score = scores.get(number)
        want = _wanted(score, mine) if score is not None else None
        if want is None:
            continue
        later = next((ball.id for ball in book.balls if ball.innings > number), _beyond(book))
        waiting = next((ball.id for ball in mine if ball.id > book.released), later)
        # With all overs there and something still missing, it may be an extra anywhere among the
        # new balls.
        yield waiting if want.startswith("extra") else later, want


def _gaps(mine: Sequence[Ball], released: int) -> Iterator[tuple[int, str]]:
    for before, ball in _pairs(mine):
        if ball.id > released and _jumps(before, ball):
            yield ball.id, f"before {ball.id}"


def _jumps(before: Ball | None, ball: Ball) -> bool:
    """Whether the numbers miss a ball between the two; umpires miscount, so there need not have been one."""
    if before is None:
        return (ball.over, ball.number) > (0, 1)
    if ball.over == before.over:
        return ball.number > before.number + before.is_legal
    is_complete = before.is_legal and before.number >= BALLS_PER_OVER
    return not is_complete or ball.over > before.over + 1 or ball.number > 1


def _wanted(score: InningsFeed, mine: Sequence[Ball]) -> str | None:
    """What the balls of an innings lack to add up to its scores: None if nothing."""
    has = innings_totals(mine).get(score.number, Totals(Overs(0, 0), 0, 0))
    says = Totals(score.overs, score.runs, score.wickets)
    if has == says:
        return None
    if has.overs == says.overs:
        if has.runs >= says.runs and has.wickets >= says.wickets:
            return f"scores {score.number} {mine[-1].id}" if mine else None
        return f"extra {score.number} {says.runs - has.runs} {says.wickets - has.wickets}"
    last = mine[-1].id if mine else 0
    return f"{'balls' if has.overs < says.overs else 'scores'} {score.number} {last}"
