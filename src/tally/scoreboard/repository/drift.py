"""Compares the leaderboard in Redis with PostgreSQL page by page and repairs differences.

A difference may be a change in progress, which PostgreSQL has and Redis is about to receive. Each
candidate is therefore read again, first from Redis, then from PostgreSQL. If they still differ,
Redis is set to PostgreSQL's value, provided that the entry is unchanged since it was read; a
concurrent change is newer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.scoreboard.model.scores import Score
from tally.scoreboard.model.statistics import DriftReport
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.ranked_scores import RankedScores

PAGE_SIZE: Final = 500
MAX_EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True)
class DriftChecker:
    """Compares and repairs; memory is bounded by the page size."""

    cache: LeaderboardCache
    scores: RankedScores

    async def run(self, *, repair: bool) -> DriftReport:
        """Compare all players, and optionally repair; raises LeaderboardNotCached."""
        report = DriftReport()
        async for user_ids, scores, entries in self.scores.comparable(PAGE_SIZE):
            cached_entries, cached_scores = await self.cache.read_raw(user_ids)
            report = replace(report, compared=report.compared + len(user_ids))
            # Usually nothing differs: comparing whole lists keeps a million players cheap.
            if cached_entries != list(entries) or cached_scores != list(scores):
                rows = zip(
                    user_ids,
                    zip(entries, scores, strict=True),
                    zip(cached_entries, cached_scores, strict=True),
                    strict=True,
                )
                candidates = [user_id for user_id, stored, cached in rows if cached != stored]
                report = await self._recheck(report, candidates, repair=repair)
        expected = report.compared - (0 if repair else report.missing)
        # Every player of PostgreSQL is accounted for. If the sizes match, there are no others.
        if await self.cache.sizes() != (expected, expected):
            report = await self._check_strays(report, repair=repair)
            report = await self._check_extras(report, repair=repair)
        return report

    async def refresh(self, user_ids: Sequence[str]) -> DriftReport:
        """Repair these players, including deleted ones that a late write brought back."""
        return await self._recheck(DriftReport(compared=len(user_ids)), user_ids, repair=True)

    async def _check_strays(self, report: DriftReport, *, repair: bool) -> DriftReport:
        async for members in self.cache.member_pages(PAGE_SIZE):
            strays = len(await self.cache.find_strays(members, remove=repair))
            report = replace(
                report,
                strays=report.strays + strays,
                repaired=report.repaired + (strays if repair else 0),
            )
        return report

    async def _check_extras(self, report: DriftReport, *, repair: bool) -> DriftReport:
        async for page in self.cache.player_pages(PAGE_SIZE):
            user_ids = sorted(set(page))
            existing = await self.scores.find_many(user_ids)
            candidates = [user_id for user_id in user_ids if user_id not in existing]
            report = await self._recheck(report, candidates, repair=repair)
        return report

    async def _recheck(
        self, report: DriftReport, user_ids: Sequence[str], *, repair: bool
    ) -> DriftReport:
        """Read the candidates again and add the actual differences to the report."""
        if not user_ids:
            return report
        cached = await self.cache.read_entries(user_ids)
        stored = await self.scores.find_many(user_ids)
        for user_id, entry in zip(user_ids, cached, strict=True):
            score = stored.get(user_id)
            if entry.matches(score):
                continue
            is_repaired = repair and await self.cache.repair(user_id, entry, score)
            report = _add_difference(
                report, user_id, score, is_missing=not entry.score, is_repaired=is_repaired
            )
        return report


def _add_difference(
    report: DriftReport,
    user_id: str,
    score: Score | None,
    *,
    is_missing: bool,
    is_repaired: bool,
) -> DriftReport:
    is_full = len(report.examples) >= MAX_EXAMPLES
    return replace(
        report,
        extra=report.extra + (score is None),
        missing=report.missing + (score is not None and is_missing),
        wrong=report.wrong + (score is not None and not is_missing),
        repaired=report.repaired + is_repaired,
        examples=report.examples if is_full else (*report.examples, user_id),
    )
