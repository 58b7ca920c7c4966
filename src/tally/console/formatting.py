"""Formats sizes, rates, durations and ages for people."""

from typing import Final

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400


def format_size(count: float) -> str:
    """Format bytes: `512 bytes`, `4.2 MB`."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return (
        f"{count:.0f} {_UNITS[unit]}"
        if unit == 0 or count >= 100
        else f"{count:.1f} {_UNITS[unit]}"
    )


def format_rate(count: float) -> str:
    """Format a number per second: `0.3`, `8.1`, `1,204`."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.1f}"


def pluralize(count: int, singular: str, plural: str) -> str:
    """Return the singular or the plural form for `count`."""
    return singular if count == 1 else plural


def format_duration(seconds: float) -> str:
    """Format a duration: `0.4 ms`, `12 ms`, `3.1 s`."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def format_span(seconds: float) -> str:
    """Format a time span: `12 s`, `4 min`, `2 h`, `3 days`."""
    if seconds < MINUTE:
        return f"{max(0, seconds):.0f} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"


def format_ago(seconds: float) -> str:
    """Format an age: `just now`, `4 min ago`."""
    return "just now" if seconds < 2 else f"{format_span(seconds)} ago"
