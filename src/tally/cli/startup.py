"""What every command does first: read the settings, configure logging, explain errors.

The option types that several commands share are here too.
"""

import dataclasses
import io
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn, TextIO, cast

import typer

from tally.backup.errors import BackupFailed
from tally.cli.extras import MissingExtra
from tally.errors import TallyError, Unavailable
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.kit.log_stream import BackgroundStream
from tally.kit.operators import Operator, Role
from tally.kit.server import ListenError
from tally.settings import Settings, SettingsError, read_settings, unknown_variables
from tally.store.errors import StoreError, TableNotFound

Host = Annotated[str | None, typer.Option(help="Address to listen on; overrides TALLY_HOST.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on; overrides TALLY_PORT.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_settings(
    host: str | None = None,
    port: int | None = None,
    backends: list[str] | None = None,
) -> Settings:
    """Read the settings, apply the command line's overrides and configure logging."""
    overrides = {"TALLY_BACKENDS": ",".join(backends)} if backends else {}
    with explained_errors():
        settings = read_settings(os.environ | overrides)
    settings = dataclasses.replace(
        settings,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
    )
    logs.configure(settings, SystemClock())
    for warning in unknown_variables(os.environ):
        typer.echo(warning, err=True)
    return settings


@contextmanager
def server_log(settings: Settings, file: io.RawIOBase | None = None) -> Iterator[None]:
    """Write the logs to `file` (standard error) in a thread, as no request may wait for it."""
    file = file or io.FileIO(sys.stderr.fileno(), "w", closefd=False)
    with BackgroundStream(file) as stream:
        logs.configure(settings, SystemClock(), cast(TextIO, stream))
        yield


@contextmanager
def explained_errors() -> Iterator[None]:
    """Print an error that the user can fix, and exit with 2, or 1 if the operation had begun."""
    try:
        yield
    except SettingsError as error:
        _exit(*error.problems)
    except ListenError as error:
        _exit(f"{error}. Choose another with --host and --port, or TALLY_HOST and TALLY_PORT.")
    except MissingExtra as error:
        _exit(str(error))
    except BackupFailed as error:
        _exit(error.message, code=1)
    except Unavailable as error:
        cause = error.__cause__  # only these: others may quote a URL with its password
        if isinstance(cause, TableNotFound):
            _exit(f'A table does not exist; run "tally schema create" ({cause})')
        _exit(f"{error.message}: {cause}" if isinstance(cause, OSError) else error.message)
    except TallyError as error:
        _exit(error.message)
    except StoreError as error:
        _exit(f"Store error: {error}")


def local_user() -> Operator:
    """Return whom the audit trail names for a command: the user of the operating system."""
    user_id = os.getuid()
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # a container may run as a user without an entry
        name = str(user_id)
    return Operator(f"cli:{name}", Role.OPERATOR)


def _exit(*messages: str, code: int = 2) -> NoReturn:
    for message in messages:
        typer.echo(message, err=True)
    raise typer.Exit(code)
