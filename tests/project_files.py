"""Lists the files of the project that git tracks."""

import subprocess
from pathlib import Path

from tests.needs import need_program

ROOT = Path(__file__).parent.parent


def tracked_files() -> list[Path]:
    """Return the absolute paths of all tracked files that exist."""
    git = need_program("git", "git")
    listing = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
