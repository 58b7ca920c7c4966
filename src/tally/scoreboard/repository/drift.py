"""Comparing the board in Redis with PostgreSQL, page by page, and setting right what differs, and only that.

A difference may be a change on its way: PostgreSQL has it, and Redis gets it in a moment. So whoever seems wrong is looked at
again, first in Redis and then in PostgreSQL. If they still differ, Redis is set to what PostgreSQL says, provided that it is
still as it was seen; whoever changed it in the meantime was newer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.scoreboard.model import Drift, Score
from tally.scoreboard.repository.board import BoardRepository, user_of
from tally.scoreboard.repository.scores import ScoreRepository

PAGE: Final = 500
MOST_EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True)
class DriftCheck:
    """Compares and heals; memory is bounded by the size of a page."""

    board: BoardRepository
    scores: ScoreRepository

    async def run(self, *, heal: bool) -> Drift:
        """What differs, set right if so wished. BoardMissing where there is no board to compare with."""
        drift = Drift()
        async for page in self.scores.pages(PAGE):
            seen = await self.board.look([score.user_id for score in page])
            suspects = [score.user_id for score, found in zip(page, seen, strict=True) if not found.shows(score)]
            drift = await self._judge(replace(drift, compared=drift.compared + len(page)), suspects, heal=heal)
        async for members in self.board.member_pages(PAGE):
            strays = await self.board.strays(members, remove=heal)
            healed = len(strays) if heal else 0
            drift = replace(drift, strays=drift.strays + len(strays), healed=drift.healed + healed)
            users = sorted({user_of(member) for member in members if member not in strays})
            known = await self.scores.find_many(users)
            drift = await self._judge(drift, [user for user in users if user not in known], heal=heal)
        return drift

    async def _judge(self, drift: Drift, user_ids: Sequence[str], *, heal: bool) -> Drift:
        """Look again at those who seem wrong, and add what they are to the drift."""
        if not user_ids:
            return drift
        seen = await self.board.look(user_ids)
        right = await self.scores.find_many(user_ids)
        for user_id, found in zip(user_ids, seen, strict=True):
            score = right.get(user_id)
            if found.shows(score):
                continue
            healed = heal and await self.board.heal(user_id, found, score)
            drift = _with(drift, user_id, score, is_missing=not found.score, healed=healed)
        return drift


def _with(drift: Drift, user_id: str, score: Score | None, *, is_missing: bool, healed: bool) -> Drift:
    examples = drift.examples if len(drift.examples) >= MOST_EXAMPLES else (*drift.examples, user_id)
    return replace(
        drift,
        extra=drift.extra + (score is None),
        missing=drift.missing + (score is not None and is_missing),
        wrong=drift.wrong + (score is not None and not is_missing),
        healed=drift.healed + healed,
        examples=examples,
    )
