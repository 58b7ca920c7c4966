"""Errors that several services raise and the OpenAPI document lists."""

from typing import Final

from tally.errors import Conflict, Invalid, NotFound

# Live Activities of a user for one match that apps registered, and as many subscriptions.
MAX_ACTIVITIES_PER_USER: Final = 50


def match_not_found() -> NotFound:
    return NotFound("Match not found", code="match_not_found")


def team_not_found() -> NotFound:
    return NotFound("Team not found", code="team_not_found")


def league_not_found() -> NotFound:
    return NotFound("League not found", code="league_not_found")


def device_not_found() -> NotFound:
    return NotFound("Device is not registered", code="device_not_found")


def device_not_startable() -> NotFound:
    return NotFound(
        "The device is not registered, or has no push-to-start token", code="device_not_found"
    )


def subscription_not_found() -> NotFound:
    return NotFound("Subscription not found", code="subscription_not_found")


def not_followed() -> NotFound:
    return NotFound("The user does not follow this match", code="not_followed")


def team_not_in_match() -> Invalid:
    return Invalid(
        "teamId must be a team of the match",
        code="team_not_in_match",
        field="teamId",
    )


def winner_not_in_match() -> Invalid:
    return Invalid(
        "winnerTeamId must be a team of the match",
        code="team_not_in_match",
        field="winnerTeamId",
    )


def one_device_identifier() -> Invalid:
    return Invalid(
        "Exactly one of deviceToken and deviceId is required",
        code="invalid_field",
        field="deviceToken",
    )


def nothing_to_change() -> Invalid:
    return Invalid("Provide at least one field to change", code="nothing_to_change")


def too_many_teams(limit: int) -> Conflict:
    return Conflict(f"You follow {limit} teams, which is the limit", code="too_many_teams")


def match_over() -> Conflict:
    return Conflict("The match is over", code="match_over")


def activity_ended() -> Conflict:
    return Conflict("The Live Activity has ended, or was never started", code="activity_ended")


def too_many_activities() -> Conflict:
    return Conflict(
        f"You have {MAX_ACTIVITIES_PER_USER} Live Activities for this match, which is the most",
        code="too_many_activities",
    )


def match_not_live() -> Conflict:
    return Conflict("The match is not live", code="match_not_live")


def no_recording() -> Conflict:
    return Conflict("The match cannot be replayed: its balls are not stored", code="no_recording")
