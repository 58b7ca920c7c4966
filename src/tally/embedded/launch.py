"""Becomes a server: run as a script, it makes the process what the server needs, and then runs the server in its place.

    python -I -S launch.py PARENT SIGNAL IDENTITY PROGRAM [ARGUMENT…]

SIGNAL is what the kernel sends the server when the program that started it (PARENT) ends, also if
it was killed. IDENTITY is `same`; or `namespace`, a user namespace in which root appears as nobody,
so that PostgreSQL, which refuses to run as root, runs and owns its files as before; or USER:GROUP,
numbers to become, where namespaces are not to be had. It is a script, and no function that runs
after a fork, since those may not be called from a program with threads. It imports no part of
Tally.
"""

import ctypes
import os
import signal
import sys

NOT_POSSIBLE = 97
NOBODY = 65534
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent, number, identity, program, *rest = arguments
    os.umask(0o077)
    try:
        if identity == "namespace":
            hide_root()
        elif identity != "same":
            become(*(int(number) for number in identity.split(":")))
        # Last, since it is forgotten when a process changes its user.
        follow(int(parent), int(number))
    except OSError as error:
        sys.stderr.write(f"launch: {identity}: {error}\n")
        sys.exit(NOT_POSSIBLE)
    # As the shell would have left it: Python ignores it, and what it starts would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, [program, *rest])  # noqa: S606  (that is what it is for)


def hide_root() -> None:
    user, group = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def become(user: int, group: int) -> None:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)


def follow(parent: int, number: int) -> None:
    """Ask for the signal; it does not come for a parent that was gone before."""
    if sys.platform == "linux":
        call("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


def call(name: str, *arguments: int) -> None:
    """A call of the C library, whose failure is an OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
