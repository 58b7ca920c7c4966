"""The DynamoDB endpoint beside other servers of the protocol, measured with wrk.

Items have 1 KB. Tally writes durably; Dynoxide runs with a database file, and in memory for
queries; dynalite, DynamoDB Local and ministack keep their data in memory. The servers take turns,
so that other load on the machine meets all of them, and every figure is a median of the rounds.
"""

import asyncio
import contextlib
import re
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

import boto3

from bench.load import RequestsFailed
from bench.programs import Program, start_program
from bench.rounds import Line
from tests.clients import generators
from tests.clients.test_dynamodb_clients import FOLDER as CLIENTS
from tests.store.emulators import dynamodb_local, dynoxide, ministack, start_server

_SECTION: Final = "DynamoDB endpoint, time per request with wrk, items of 1 KB"
_SECONDS: Final = 2
_MAX_ROUNDS: Final = 5
_PARTITIONS, _ITEMS = 40, 25
_FILE, _MEMORY = "Dynoxide (file)", "Dynoxide (memory)"
_OURS: Final = "Tally"
_PAD: Final = "x" * 900
_BODIES: Final = {
    "GetItem": '{"TableName":"bench","Key":{"pk":{"S":"p%04d"},"sk":{"S":"s%04d"}}}',
    "PutItem": '{"TableName":"bench","Item":{"pk":{"S":"p%04d"},"sk":{"S":"n%04d"},'
    f'"count":{{"N":"5"}},"active":{{"BOOL":true}},"body":{{"S":"{_PAD}"}}}}}}',
    "Query": '{"TableName":"bench","KeyConditionExpression":"pk = :pk","Limit":10,'
    '"ExpressionAttributeValues":{":pk":{"S":"p%04d"}}}',
}
_SCRIPT: Final = """
wrk.method = "POST"
wrk.headers["X-Amz-Target"] = "DynamoDB_20120810.OPERATION"
wrk.headers["Content-Type"] = "application/x-amz-json-1.0"
wrk.headers["X-Amz-Date"] = "20260101T000000Z"
wrk.headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/"
    .. "aws4_request, SignedHeaders=host;x-amz-date, Signature=" .. string.rep("0", 64)
local n = 0
request = function()
  n = n + 1
  return wrk.format(nil, "/", nil, string.format([[BODY]], n % 40, math.floor(n / 40) % 25))
end
"""


@dataclass(frozen=True, slots=True)
class _Case:
    """An operation, its concurrency, and by how much each peer should be slower at least."""

    operation: str
    connections: int
    goals: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.operation}, {self.connections} connections"


_CASES: Final = (
    _Case("GetItem", 1, {_FILE: 1, "dynalite": 1.5}),
    _Case("GetItem", 16, {_FILE: 1, "dynalite": 1.5}),
    _Case("PutItem", 16, {_FILE: 2, "dynalite": 1}),
    _Case("Query", 16, {_MEMORY: 1, "dynalite": 2}),
)


async def endpoint(rounds: int) -> AsyncIterator[Line]:
    """Compare requests per second, and the CPU time per GetItem with that of Dynoxide."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-")))
        servers = await _start(stack, folder)
        for url in servers.values():
            await asyncio.to_thread(_load, url)
        processors = {name: _process(servers[name]) for name in (_OURS, _FILE)}
        for case in _CASES:
            times, costs = await _measure(
                case, min(rounds, _MAX_ROUNDS), servers, processors, folder
            )
            for peer in servers:
                if peer != _OURS:
                    yield _compare(case, times, peer)
            if case.operation == "GetItem":
                yield _line(f"{case.name}, CPU time", costs, _FILE, 1)


def _compare(case: _Case, times: dict[str, list[float]], peer: str) -> Line:
    return _line(case.name, times, peer, case.goals.get(peer))


def _line(name: str, times: dict[str, list[float]], peer: str, goal: float | None) -> Line:
    ours, theirs = median(times[_OURS]), median(times[peer])
    ratio = median(one / other for one, other in zip(times[_OURS], times[peer], strict=True))
    target = "" if goal is None else f"at most {1 / goal:.3g} times"
    return Line(
        _SECTION,
        name,
        ours,
        peer,
        theirs,
        ratio,
        target,
        None if goal is None else ratio * goal <= 1,
    )


async def _start(stack: AsyncExitStack, folder: Path) -> dict[str, str]:
    """Start all servers, and return their URLs."""
    tally = await stack.enter_async_context(
        start_program("dynamodb", "--port", "0", "--data", str(folder / "tally"), environment={})
    )
    return {
        _OURS: tally.url,
        _FILE: stack.enter_context(dynoxide(folder / "dynoxide.db")),
        _MEMORY: stack.enter_context(dynoxide()),
        "dynalite": stack.enter_context(_dynalite()),
        "DynamoDB Local": stack.enter_context(dynamodb_local()),
        "ministack": stack.enter_context(ministack()),
    }


@contextlib.contextmanager
def _dynalite() -> Iterator[str]:
    program = str(generators.node_modules(CLIENTS) / ".bin" / "dynalite")
    options = ["--createTableMs", "0"]
    with start_server(lambda port: [program, "--port", str(port), *options], CLIENTS) as url:
        yield url


def _load(url: str) -> None:
    client: Any = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - every server accepts any key
    )
    names = ("pk", "sk")
    client.create_table(
        TableName="bench",
        KeySchema=[
            {"AttributeName": name, "KeyType": kind}
            for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
        ],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName="bench", WaiterConfig={"Delay": 1})
    rest = {"count": {"N": "5"}, "active": {"BOOL": True}, "body": {"S": _PAD}}
    for partition in range(_PARTITIONS):
        keys = ({"pk": {"S": f"p{partition:04}"}, "sk": {"S": f"s{n:04}"}} for n in range(_ITEMS))
        client.batch_write_item(
            RequestItems={"bench": [{"PutRequest": {"Item": key | rest}} for key in keys]}
        )


async def _measure(
    case: _Case,
    rounds: int,
    servers: dict[str, str],
    processors: dict[str, Program],
    folder: Path,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return µs per request of each server, and µs of CPU time of some, by round."""
    script = folder / f"{case.operation}.lua"
    body = _BODIES[case.operation]
    script.write_text(
        _SCRIPT.replace("OPERATION", case.operation).replace("BODY", body), encoding="utf-8"
    )
    times: dict[str, list[float]] = {name: [] for name in servers}
    costs: dict[str, list[float]] = {name: [] for name in processors}
    for _ in range(rounds):
        for name, url in servers.items():
            processor = processors.get(name)
            before = processor.cpu_seconds() if processor else 0.0
            count, seconds = await asyncio.to_thread(_wrk, url, case.connections, script)
            times[name].append(seconds / count * 1e6)
            if processor:
                costs[name].append((processor.cpu_seconds() - before) / count * 1e6)
    return times, costs


def _wrk(url: str, connections: int, script: Path) -> tuple[int, float]:
    """Return the number of requests and the seconds that they took."""
    options = ["-t1", f"-c{connections}", f"-d{_SECONDS}s", "-s", str(script), url]
    output = subprocess.run(["wrk", *options], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", output)
    if found is None or "Non-2xx" in output or int(found[1]) == 0:
        raise RequestsFailed(f"{url}: {output}")
    return int(found[1]), float(found[2])


def _process(url: str) -> Program:
    """Return the process that listens on the port of a URL."""
    port = f":{urlsplit(url).port or 0:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()]
    inode = next(row[9] for row in rows if row[1].endswith(port) and row[3] == "0A")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()) == f"socket:[{inode}]":
                return Program(url, int(descriptor.parts[2]))
    raise AssertionError(f"no process listens at {url}")
