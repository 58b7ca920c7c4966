"""The console's notices about Strava."""

from tally.console.athlete import MAX_EVENTS, strava_notices


def test_notices_name_what_somebody_has_to_do() -> None:
    """None without a problem."""
    assert strava_notices(needs_relink=False, is_inactive=False, parked=0) == []
    notices = strava_notices(needs_relink=True, is_inactive=True, parked=1)
    assert [
        next(word for word in ("deactivated", "link again", "1 parked event waits") if word in text)
        for text in notices
    ] == ["deactivated", "link again", "1 parked event waits"]
    assert "or more" in strava_notices(needs_relink=False, is_inactive=False, parked=MAX_EVENTS)[0]
