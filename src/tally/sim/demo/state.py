"""What the demo remembers in the data directory, so that a second start goes on where the first stopped."""

import random
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tally.errors import Unavailable
from tally.settings import Secret
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.snapshot import dump_snapshot, load_snapshot

FOLDER: Final = "demo"


class DemoFacts(msgspec.Struct, frozen=True):
    """From the seed come all people, the same at every start; `starts` counts them."""

    seed: int
    starts: int


@dataclass(frozen=True, slots=True)
class DemoState:
    """The demo's own folder."""

    folder: Path
    facts: DemoFacts

    @property
    def is_first_start(self) -> bool:
        return self.facts.starts == 1

    def rng(self, of: str) -> random.Random:
        """The same draws for the same part of the demo at every start."""
        return random.Random(f"{self.facts.seed}:{of}")  # noqa: S311  (made-up people, not keys)

    def secret(self, name: str) -> Secret | None:
        path = self.folder / f"{name}.key"
        return Secret(path.read_text(encoding="utf-8")) if path.exists() else None

    def keep_secret(self, name: str, secret: Secret) -> None:
        _write(self.folder / f"{name}.key", secret.reveal().encode())

    def forget_secret(self, name: str) -> None:
        (self.folder / f"{name}.key").unlink(missing_ok=True)

    def restore_strava(self, strava: StravaSimulator) -> bool:
        """Whether there was a world to go on with; one that cannot be read is left, and begun anew."""
        path = self.folder / "strava.json"
        if not path.exists():
            return False
        try:
            load_snapshot(strava, path.read_bytes())
        except msgspec.DecodeError:
            return False
        return True

    def keep_strava(self, strava: StravaSimulator) -> None:
        _write(self.folder / "strava.json", dump_snapshot(strava))


def open_demo_state(data_dir: Path) -> DemoState:
    """The folder of the demo in a data directory; made at the first start."""
    folder = data_dir / FOLDER
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # keys will be in it
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the data directory {data_dir.resolve()} cannot be made: {error.strerror}"
        ) from error
    path = folder / "demo.json"
    before = _facts(path) or DemoFacts(secrets.randbits(32), 0)
    facts = DemoFacts(before.seed, before.starts + 1)
    _write(path, msgspec.json.encode(facts))
    return DemoState(folder, facts)


def _facts(path: Path) -> DemoFacts | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=DemoFacts)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing, and for the owner alone."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
