"""Persists the demo in the data directory, so that a restart continues where it stopped."""

import random
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.kit.data_directory import secure_data_directory
from tally.settings import Secret
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.snapshot import dump_snapshot, load_snapshot

DIRECTORY: Final = "demo"


class DemoFacts(msgspec.Struct, frozen=True):
    """The random seed of all virtual clients, and the number of starts."""

    seed: int
    starts: int


@dataclass(frozen=True, slots=True)
class DemoState:
    """The directory of the demo: secrets, the seed and the Strava snapshot."""

    directory: Path
    facts: DemoFacts

    def rng(self, part: str) -> random.Random:
        """A generator that gives a part of the demo the same numbers at every start."""
        return random.Random(f"{self.facts.seed}:{part}")  # noqa: S311  simulated data, not keys

    def load_secret(self, name: str) -> Secret | None:
        path = self.directory / f"{name}.key"
        return Secret(path.read_text(encoding="utf-8")) if path.exists() else None

    def save_secret(self, name: str, secret: Secret) -> None:
        _write(self.directory / f"{name}.key", secret.reveal().encode())

    def delete_secret(self, name: str) -> None:
        (self.directory / f"{name}.key").unlink(missing_ok=True)

    def restore_strava(self, strava: StravaSimulator) -> bool:
        """Restore the Strava simulator; False without a valid snapshot."""
        path = self.directory / "strava.json"
        if not path.exists():
            return False
        try:
            load_snapshot(strava, path.read_bytes())
        except msgspec.DecodeError:
            return False
        return True

    def save_strava(self, strava: StravaSimulator) -> None:
        _write(self.directory / "strava.json", dump_snapshot(strava))


def open_demo_state(data_dir: Path) -> DemoState:
    """Open the state in a data directory; creates it at the first start."""
    secure_data_directory(data_dir)
    directory = data_dir / DIRECTORY
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # it will hold keys
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"Cannot create the data directory {data_dir.resolve()}: {error.strerror}"
        ) from error
    path = directory / "demo.json"
    previous = _read_facts(path) or DemoFacts(secrets.randbits(32), 0)
    facts = DemoFacts(previous.seed, previous.starts + 1)
    _write(path, msgspec.json.encode(facts))
    return DemoState(directory, facts)


def _read_facts(path: Path) -> DemoFacts | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=DemoFacts)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically; readable by the owner only."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
