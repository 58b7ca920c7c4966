"""The known balls of a match, released for event detection in order and without gaps.

A poll may miss a ball that the next poll contains, repeat one or correct one. The ball log merges
each poll by ball id and releases balls in order. A gap (ball numbers jump, or balls and scores do
not add up) holds back the balls after it for a few polls. After that the gap is ignored, and a late
ball counts as a correction. A ball that the score service has withdrawn is dropped as soon as the
remaining balls add up to the scores.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed, Overs
from tally.cricket.model.laws import BALLS_PER_OVER

# The number of polls for which a gap holds back later balls.
MAX_GAP_POLLS: Final = 3
# The prefix of gaps that stay ignored, because no ball explains them.
EXTRAS_GAP: Final = "extra"


class Totals(NamedTuple):
    """Overs, runs and wickets of an innings."""

    overs: Overs
    runs: int
    wickets: int


class BallLog(msgspec.Struct, frozen=True):
    """The balls of a match in order of ids; those with ids up to `released` are released.

    `missing` names the gap that holds back balls, `polls` counts the polls with that gap, and
    `given_up` names the ignored gaps.
    """

    balls: tuple[Ball, ...] = ()
    released: int = 0
    missing: str = ""
    polls: int = 0
    given_up: frozenset[str] = frozenset()

    @property
    def released_balls(self) -> tuple[Ball, ...]:
        return tuple(ball for ball in self.balls if ball.id <= self.released)

    def is_settled(self, innings: InningsFeed) -> bool:
        """Whether all balls of an innings are released and its gaps are closed or ignored."""
        balls = [ball for ball in self.balls if ball.innings == innings.number]
        if balls and balls[-1].id > self.released:
            return False
        gap = _score_gap(innings, balls)
        return gap is None or gap in self.given_up


def merge_poll(log: BallLog, feed: MatchFeed, *, is_final: bool = False) -> BallLog:
    """Merge the balls of a poll and release what can be released.

    With `is_final` gaps hold nothing back, because there is no later poll.
    """
    if feed.balls is None:
        return log
    merged = msgspec.structs.replace(log, balls=_merge(log.balls, feed))
    return _release(merged, feed.innings, is_final=is_final)


def encode_ball_log(log: BallLog) -> str:
    """Encode the log as JSON for the store."""
    return msgspec.json.encode(log).decode()


def decode_ball_log(text: str) -> BallLog:
    return msgspec.json.decode(text, type=BallLog)


def innings_totals(balls: Iterable[Ball]) -> dict[int, Totals]:
    """Add up the balls of each innings."""
    sums_by_innings: dict[int, list[int]] = {}
    for ball in balls:
        sums = sums_by_innings.setdefault(ball.innings, [ball.over, 0, 0, 0])
        if ball.over != sums[0]:
            sums[0], sums[1] = ball.over, 0
        sums[1] += ball.is_legal
        sums[2] += ball.runs_total
        sums[3] += ball.wicket is not None and ball.wicket.counts
    return {
        number: Totals(_overs(over, legal), runs, wickets)
        for number, (over, legal, runs, wickets) in sums_by_innings.items()
    }


def _overs(over: int, legal: int) -> Overs:
    return Overs(over + 1, 0) if legal >= BALLS_PER_OVER else Overs(over, legal)


def _merge(known: tuple[Ball, ...], feed: MatchFeed) -> tuple[Ball, ...]:
    received = {ball.id: ball for ball in feed.balls or ()}
    in_order = tuple(received[ball_id] for ball_id in sorted(received))
    if in_order and _adds_up(in_order, feed.innings):
        return in_order
    merged = {ball.id: ball for ball in known}
    for ball_id, ball in received.items():
        previous = merged.get(ball_id)
        # A response from an older cache of the service must not undo a correction.
        if previous is None or not ball.updated_at or ball.updated_at >= previous.updated_at:
            merged[ball_id] = ball
    return tuple(merged[ball_id] for ball_id in sorted(merged))


def _adds_up(balls: Sequence[Ball], innings: Sequence[InningsFeed]) -> bool:
    totals = innings_totals(balls)
    scores = {
        score.number: Totals(score.overs, score.runs, score.wickets)
        for score in innings
        if score.overs > (0, 0) or score.runs
    }
    return totals == scores and not any(_is_gap(*pair) for pair in _pairs(balls))


def _pairs(balls: Sequence[Ball]) -> Iterator[tuple[Ball | None, Ball]]:
    """Yield each delivery with the previous one of its innings."""
    previous: Ball | None = None
    for ball in balls:
        if ball.is_delivery:
            is_same_innings = previous is not None and previous.innings == ball.innings
            yield (previous if is_same_innings else None), ball
            previous = ball


def _release(log: BallLog, innings: Sequence[InningsFeed], *, is_final: bool) -> BallLog:
    gaps = list(_gaps(log, innings))
    # Extras without a ball (penalty runs between overs) stay ignored; other gaps only while they
    # exist.
    given_up = {
        ignored
        for ignored in log.given_up
        if ignored.startswith(EXTRAS_GAP) or any(ignored == gap for _, gap in gaps)
    }
    first_held, missing, polls = _next_id(log), "", 0
    for first_after_gap, gap in gaps:
        if gap in given_up:
            continue
        polls = log.polls + 1 if gap == log.missing else 1
        if not is_final and polls <= MAX_GAP_POLLS:
            first_held, missing = first_after_gap, gap
            break
        given_up.add(gap)
    released = max((ball.id for ball in log.balls if ball.id < first_held), default=0)
    return BallLog(
        log.balls,
        max(log.released, released),
        missing,
        polls if missing else 0,
        frozenset(given_up),
    )


def _next_id(log: BallLog) -> int:
    """Return an id greater than that of the last ball."""
    return log.balls[-1].id + 1 if log.balls else 1


def _gaps(log: BallLog, innings: Sequence[InningsFeed]) -> Iterator[tuple[int, str]]:
    """Yield the gaps in order of play: the id of the first ball after the gap, and its name."""
    scores = {score.number: score for score in innings}
    for number in sorted({*scores, *(ball.innings for ball in log.balls)}):
        balls = [ball for ball in log.balls if ball.innings == number]
        yield from _number_gaps(balls, log.released)
        score = scores.get(number)
        gap = _score_gap(score, balls) if score is not None else None
        if gap is None:
            continue
        later = next((ball.id for ball in log.balls if ball.innings > number), _next_id(log))
        first_unreleased = next((ball.id for ball in balls if ball.id > log.released), later)
        # All overs are complete, so the missing extra may be anywhere among the new balls.
        yield first_unreleased if gap.startswith(EXTRAS_GAP) else later, gap


def _number_gaps(balls: Sequence[Ball], released: int) -> Iterator[tuple[int, str]]:
    for previous, ball in _pairs(balls):
        if ball.id > released and _is_gap(previous, ball):
            yield ball.id, f"before {ball.id}"


def _is_gap(previous: Ball | None, ball: Ball) -> bool:
    """Whether the ball numbers jump. Umpires miscount, so there need not be a missing ball."""
    if previous is None:
        return (ball.over, ball.number) > (0, 1)
    if ball.over == previous.over:
        return ball.number > previous.number + previous.is_legal
    is_complete = previous.is_legal and previous.number >= BALLS_PER_OVER
    return not is_complete or ball.over > previous.over + 1 or ball.number > 1


def _score_gap(score: InningsFeed, balls: Sequence[Ball]) -> str | None:
    """Name the difference between the balls and the score of an innings; None if they agree."""
    counted = innings_totals(balls).get(score.number, Totals(Overs(0, 0), 0, 0))
    reported = Totals(score.overs, score.runs, score.wickets)
    if counted == reported:
        return None
    if counted.overs == reported.overs:
        if counted.runs >= reported.runs and counted.wickets >= reported.wickets:
            return f"scores {score.number} {balls[-1].id}" if balls else None
        runs, wickets = reported.runs - counted.runs, reported.wickets - counted.wickets
        return f"{EXTRAS_GAP} {score.number} {runs} {wickets}"
    last = balls[-1].id if balls else 0
    side = "balls" if counted.overs < reported.overs else "scores"
    return f"{side} {score.number} {last}"
