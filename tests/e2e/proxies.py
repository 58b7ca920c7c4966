"""Runs nginx and HAProxy with the files in `deploy/`, on loopback addresses."""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.needs import need_program
from tests.test_cli import TIMEOUT_SECONDS, free_port

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
# nginx connects to Tally from this address, so that only the setting can make Tally trust it.
NGINX_ADDRESS = "127.0.0.9"


def replaced(text: str, values: Mapping[str, str]) -> str:
    """Replace each line that matches, which must exist."""
    for pattern, value in values.items():
        text, count = re.subn(pattern, value, text, flags=re.MULTILINE)
        assert count, f"no line matches {pattern!r}"
    return text


def wait_until_served(program: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        listening = f"{port:04X}"
        with suppress(OSError):
            table = Path("/proc/net/tcp").read_text(encoding="utf-8")
            if re.search(rf":{listening} 00000000:0000 0A", table):
                return
        if program.poll() is not None or time.monotonic() > end:
            pytest.fail(log.read_text(encoding="utf-8"), pytrace=False)
        time.sleep(0.02)


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[str]:
    with log.open("wb") as output:
        program = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until_served(program, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        program.wait(TIMEOUT_SECONDS)


@contextmanager
def nginx(directory: Path, server: str) -> Iterator[str]:
    """Run nginx in front of a server, given as `address:port`; yield its URL."""
    program, port = need_program("nginx", "nginx-light"), free_port()
    site = replaced(
        (DEPLOY / "nginx.conf").read_text(encoding="utf-8"),
        {
            r"127\.0\.0\.1:8080": server,
            # Without TLS: the addresses and names are what is tested.
            r"listen 443 ssl": f"listen 127.0.0.1:{port}",
            r"^ *ssl_certificate.*\n": "",
            r"proxy_pass http://tally;": f"proxy_bind {NGINX_ADDRESS}; proxy_pass http://tally;",
        },
    )
    temporary = "".join(
        f"{name}_temp_path {directory}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"daemon off;\nmaster_process off;\npid {directory}/nginx.pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n",
        encoding="utf-8",
    )
    command = [str(program), "-p", str(directory), "-c", str(configuration), "-e", "stderr"]
    with running(command, port, directory / "nginx.log") as url:
        yield url


@contextmanager
def haproxy(directory: Path, one: str, two: str) -> Iterator[str]:
    """Run HAProxy in front of two servers, each given as `address:port`; yield its URL."""
    program, port = need_program("haproxy", "haproxy"), free_port()
    configuration = directory / "haproxy.cfg"
    configuration.write_text(
        replaced(
            (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8"),
            {
                "bind :8000": f"bind 127.0.0.1:{port}",
                r"127\.0\.0\.1:8081": one,
                r"127\.0\.0\.1:8082": two,
            },
        ),
        encoding="utf-8",
    )
    with running(
        [str(program), "-db", "-f", str(configuration)], port, directory / "haproxy.log"
    ) as url:
        yield url
