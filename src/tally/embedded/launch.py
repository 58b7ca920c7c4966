"""A script that prepares a process and then executes a server in it.

    python -I -S launch.py PARENT SIGNAL IDENTITY PROGRAM [ARGUMENT…]

SIGNAL is what the kernel sends to the server when its parent process (PARENT) ends, even if killed.
IDENTITY is `same`; `namespace`, a user namespace that maps root to nobody, because PostgreSQL
rejects root; or USER:GROUP, the ids to switch to if user namespaces are not available. This is a
script because code between fork and exec is not safe in a program with threads. It imports nothing
from Tally.
"""

import ctypes
import os
import signal
import sys

SETUP_FAILED = 97
NOBODY = 65534
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1


def execute_server(arguments: list[str]) -> None:
    parent, death_signal, identity, program, *rest = arguments
    os.umask(0o077)
    try:
        if identity == "namespace":
            enter_user_namespace()
        elif identity != "same":
            switch_user(*(int(number) for number in identity.split(":")))
        # Last, because the kernel clears it when a process changes its user.
        set_parent_death_signal(int(parent), int(death_signal))
    except OSError as error:
        sys.stderr.write(f"launch: {identity}: {error}\n")
        sys.exit(SETUP_FAILED)
    # Python ignores SIGPIPE, and the server would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, [program, *rest])  # noqa: S606  (the purpose of this script)


def enter_user_namespace() -> None:
    """Enter a user namespace in which the current user appears as nobody."""
    user, group = os.geteuid(), os.getegid()
    call_libc("unshare", CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def switch_user(user: int, group: int) -> None:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)


def set_parent_death_signal(parent: int, death_signal: int) -> None:
    """Request the signal; exit if the parent has already ended, since it would never come."""
    if sys.platform == "linux":
        call_libc("prctl", PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def call_libc(name: str, *arguments: int) -> None:
    """Call a function of the C library; raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    execute_server(sys.argv[1:])
