"""Errors that several services raise and the OpenAPI document lists."""

from tally.errors import Conflict, Invalid, NotFound


def match_not_found() -> NotFound:
    return NotFound("Match not found", code="match_not_found")


def team_not_found() -> NotFound:
    return NotFound("Team not found", code="team_not_found")


def league_not_found() -> NotFound:
    return NotFound("League not found", code="league_not_found")


def device_not_found() -> NotFound:
    return NotFound("Device is not registered", code="device_not_found")


def subscription_not_found() -> NotFound:
    return NotFound("Subscription not found", code="subscription_not_found")


def not_followed() -> NotFound:
    return NotFound("You do not follow this match", code="not_followed")


def team_not_in_match() -> Invalid:
    return Invalid(
        "teamId must be a team of the match",
        code="team_not_in_match",
        field="teamId",
    )


def one_device_identifier() -> Invalid:
    return Invalid(
        "Exactly one of deviceToken and deviceId is required",
        code="invalid_field",
        field="deviceToken",
    )


def nothing_to_change() -> Invalid:
    return Invalid("Provide at least one field to change", code="nothing_to_change")


def match_over() -> Conflict:
    return Conflict("The match is over", code="match_over")


def activity_ended() -> Conflict:
    return Conflict("The Live Activity has ended", code="activity_ended")


def no_recording() -> Conflict:
    return Conflict("The match cannot be replayed: its balls are not stored", code="no_recording")
