"""From the domain's words to those of the wire."""

from tally.kit.http import Json
from tally.scoreboard.api import schemas
from tally.scoreboard.model import (
    DriftReport,
    LeaderboardPage,
    PlayerSession,
    ScoreEvent,
    ScoreEventPage,
    Standing,
    User,
    percentile,
)
from tally.scoreboard.service.sessions import SessionTokens


def enveloped(data: object, status: int = 200) -> Json:
    """An answer that is no error; those with tokens in them, and all others too, are nobody's to keep."""
    return Json({"success": True, "data": data}, status, {"Cache-Control": "no-store"})


def player(user: User) -> schemas.Player:
    return schemas.Player(user.user_id, user.username, user.email, user.avatar_url, user.created_at)


def tokens(grant: SessionTokens) -> schemas.Tokens:
    session_id = grant.session.session_id
    return schemas.Tokens(
        grant.access_token, "Bearer", grant.access_expires_at, grant.refresh_token, session_id
    )


def session(held: PlayerSession, current_id: str) -> schemas.SessionShown:
    return schemas.SessionShown(
        session_id=held.session_id,
        is_current=held.session_id == current_id,
        created_at=held.created_at,
        expires_at=held.expires_at,
        ip_address=held.ip_address,
        user_agent=held.user_agent,
    )


def place(standing: Standing) -> schemas.Place:
    return schemas.Place(
        standing.rank, standing.user_id, standing.username, standing.score, standing.reached_at
    )


def board(found: LeaderboardPage) -> schemas.BoardShown:
    return schemas.BoardShown(
        [place(standing) for standing in found.standings], found.total_players, found.changed_at
    )


def my_score(standing: Standing, total_players: int) -> schemas.MyScore:
    return schemas.MyScore(
        user_id=standing.user_id,
        username=standing.username,
        score=standing.score,
        rank=standing.rank,
        total_players=total_players,
        percentile=percentile(standing.rank, total_players),
        reached_at=standing.reached_at,
    )


def event_page(page: ScoreEventPage, next_cursor: str | None) -> schemas.EventPageShown:
    return schemas.EventPageShown([event(each) for each in page.events], next_cursor)


def event(happened: ScoreEvent) -> schemas.EventShown:
    return schemas.EventShown(
        event_id=happened.event_id,
        action_id=happened.action_id,
        score_delta=happened.score_delta,
        score_before=happened.score_before,
        score_after=happened.score_after,
        metadata=dict(happened.metadata),
        created_at=happened.created_at,
    )


def drift(found: DriftReport) -> schemas.DriftShown:
    return schemas.DriftShown(
        compared=found.compared,
        found=found.found,
        missing=found.missing,
        wrong=found.wrong,
        extra=found.extra,
        strays=found.strays,
        examples=list(found.examples),
    )
