"""Encodes a display state as JSON content that fits a push payload.

Names and texts come from external services. `display_content` first sanitizes them: no lone
surrogates, no control characters, at most 160 characters. While the JSON exceeds the limit, it then
drops parts, the least important first:

1. the expanded line
2. the status text
3. balls before the last six
4. the text of the event
5. the bowler
6. run rates and target
7. the balls
8. the batters
9. the runs needed
10. the result
11. the team names (the codes stay)
12. the event

If that is not enough, it truncates texts step by step. What remains is the teams, the scores and
the timestamp.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tally.cricket.model.display import DisplayState

MAX_TEXT_LENGTH: Final = 160
_ELLIPSIS: Final = "…"
# A truncated text must not end with these: they modify or join the previous character.
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")
_TRUNCATED_LENGTHS: Final = (80, 40, 24, 12, 6, 3)
# The hash ignores these fields, because they are not visible.
_INVISIBLE_FIELDS: Final = frozenset({"timestamp"})
# Ids and enumerated values are never truncated.
_EXACT_FIELDS: Final = frozenset({"matchId", "view", "id", "status", "kind", "mood"})

Content: TypeAlias = dict[str, Any]


def display_content(state: DisplayState, max_bytes: int) -> Content:
    """Return the sanitized state in at most `max_bytes` bytes of JSON.

    A state that has nothing left to drop may exceed a limit below 400 bytes.
    """
    return truncate_content(_sanitize(msgspec.to_builtins(state), MAX_TEXT_LENGTH), max_bytes)


def truncate_content(content: Content, max_bytes: int) -> Content:
    """Drop parts of sanitized content until it fits."""
    for drop in DROP_STEPS:
        if json_size(content) <= max_bytes:
            return content
        content = drop(content)
    for max_length in _TRUNCATED_LENGTHS:
        if json_size(content) <= max_bytes:
            break
        content = _sanitize(content, max_length)
    return content


def json_size(content: Mapping[str, Any]) -> int:
    """Return the number of bytes of the JSON encoding."""
    return len(msgspec.json.encode(content))


def content_hash(content: Mapping[str, Any]) -> str:
    """Hash the visible content; equal hashes need no second push."""
    visible = {name: value for name, value in content.items() if name not in _INVISIBLE_FIELDS}
    return hashlib.sha256(msgspec.json.encode(visible, order="sorted")).hexdigest()[:32]


def sanitize_text(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Return printable text of at most `max_length` characters."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = "".join(
        character if character.isprintable() or character in _JOINERS else " " for character in text
    )
    text = " ".join(text.split())
    return text if len(text) <= max_length else truncate_text(text, max_length)


def truncate_text(text: str, max_length: int) -> str:
    """Return the start of the text with an ellipsis; never split a grapheme at the end."""
    start = text[: max_length - 1]
    while start and (
        start[-1] in _JOINERS
        or (text[len(start)] in _JOINERS or unicodedata.combining(text[len(start)]))
    ):
        start = start[:-1]
    return start.rstrip() + _ELLIPSIS


def _sanitize(value: Any, max_length: int) -> Any:
    if isinstance(value, str):
        return sanitize_text(value, max_length)
    if isinstance(value, dict):
        return {
            name: _sanitize(field, MAX_TEXT_LENGTH if name in _EXACT_FIELDS else max_length)
            for name, field in value.items()
        }
    if isinstance(value, list | tuple):
        return [_sanitize(item, max_length) for item in value]
    return value


def _without(*names: str) -> Callable[[Content], Content]:
    return lambda content: {name: value for name, value in content.items() if name not in names}


def _without_nested(part: str, name: str) -> Callable[[Content], Content]:
    def drop(content: Content) -> Content:
        nested = content.get(part)
        if nested is None:
            return content
        return content | {part: {key: value for key, value in nested.items() if key != name}}

    return drop


def _six_balls(content: Content) -> Content:
    return content | {"lastBalls": content["lastBalls"][-6:]} if "lastBalls" in content else content


def _codes_as_names(content: Content) -> Content:
    return content | {"teams": [team | {"name": team["code"]} for team in content["teams"]]}


DROP_STEPS: Final[tuple[Callable[[Content], Content], ...]] = (
    _without_nested("lines", "expanded"),
    _without("statusText"),
    _six_balls,
    _without_nested("keyEvent", "text"),
    _without("bowler"),
    _without("runRate", "requiredRate", "target"),
    _without("lastBalls"),
    _without("batters"),
    _without("need"),
    _without("result"),
    _codes_as_names,
    _without("keyEvent"),
)
