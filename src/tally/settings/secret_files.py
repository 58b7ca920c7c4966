"""Reads secrets from files: `TALLY_CURSOR_SECRET_FILE` names the file of `TALLY_CURSOR_SECRET`.

Docker and Kubernetes pass secrets as files, which other processes and `docker inspect` do not show.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

SUFFIX: Final = "_FILE"
# A secret is a key or a URL; a larger file is another one.
MAX_SECRET_BYTES: Final = 65_536


def read_secret_file(variable: str, environ: Mapping[str, str]) -> str:
    """Return the text of the file that `{variable}_FILE` names.

    Raises ValueError, which names the file but not its content.
    """
    name = environ[variable + SUFFIX].strip()
    try:
        with Path(name).expanduser().open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        raise ValueError(f"names {name}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"names {name}, which is not UTF-8 text") from None
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"names {name}, which has more than {MAX_SECRET_BYTES} bytes")
    if not text:
        raise ValueError(f"names {name}, which is empty")
    return text
