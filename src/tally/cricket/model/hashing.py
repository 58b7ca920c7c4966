"""The fingerprint of what a person would see: two states with the same one are not worth a second push."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

# When it was built is in the state, but nobody sees it.
UNSEEN: Final = frozenset({"timestamp"})


def content_hash(content: Mapping[str, Any]) -> str:
    """Of a display state as it goes to devices."""
    seen = {name: value for name, value in content.items() if name not in UNSEEN}
    return hashlib.sha256(msgspec.json.encode(seen, order="sorted")).hexdigest()[:32]
