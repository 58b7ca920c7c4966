"""What the app keeps on the phone (UserDefaults): survives a quit, a crash and a restart, and nothing more than that."""

from pathlib import Path
from typing import Any

import msgspec


class UserDefaults:
    """A few values by name, in memory or in a file that is written whole with every change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        if path is not None and path.exists():
            self._values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])

    def texts(self, name: str) -> dict[str, str]:
        """A copy of the texts kept under a name; none if there are none."""
        return dict(self._values.get(name, {}))

    def keep(self, name: str, texts: dict[str, str]) -> None:
        self._values[name] = dict(texts)
        if self._path is not None:
            draft = self._path.with_suffix(".new")
            draft.write_bytes(msgspec.json.encode(self._values))
            draft.replace(self._path)

    def set(self, name: str, key: str, text: str) -> None:
        self.keep(name, self.texts(name) | {key: text})

    def remove(self, name: str, key: str) -> None:
        texts = self.texts(name)
        if texts.pop(key, None) is not None:
            self.keep(name, texts)
