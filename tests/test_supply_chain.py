"""`make sbom` lists the locked packages, and `make audit` never claims a result that it lacks."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parent.parent
VULNERABLE = "starlette"
ADVISORY: dict[str, Any] = {
    "id": "GHSA-test-test-test",
    "summary": "A test",
    "affected": [
        {
            "package": {"name": VULNERABLE, "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
        }
    ],
}


def make(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def locked(name: str) -> dict[str, set[str]]:
    """Return the hashes of each locked package, by name and version."""
    text = (ROOT / name).read_text(encoding="utf-8")
    parts = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    return {re.split(r"[ ;]", part)[0]: set(re.findall(r"sha256:(\w+)", part)) for part in parts}


def hashes(component: dict[str, Any]) -> set[str]:
    """Return the hashes of a component's files."""
    return {
        entry["content"]
        for reference in component.get("externalReferences", [])
        for entry in reference.get("hashes", [])
    }


@pytest.mark.judge
def test_the_bills_of_materials_list_the_locked_packages_with_hashes() -> None:
    """The schema of CycloneDX accepts them, and a second run writes the same bytes."""
    locks = {
        "sbom.cdx.json": "requirements.lock",
        "sbom-image.cdx.json": "deploy/requirements.lock",
    }
    assert make("sbom").returncode == 0
    written = {name: (ROOT / "dist" / name).read_text(encoding="utf-8") for name in locks}
    for name, lock in locks.items():
        parsed = json.loads(written[name])
        version = SchemaVersion.from_version(parsed["specVersion"])
        assert JsonStrictValidator(version).validate_str(written[name]) is None
        found = {
            f"{part['name']}=={part['version']}": hashes(part) for part in parsed["components"]
        }
        assert found == {re.sub(r"\[.*?\]", "", pin): files for pin, files in locked(lock).items()}
    assert make("sbom").returncode == 0
    assert {name: (ROOT / "dist" / name).read_text(encoding="utf-8") for name in locks} == written


class Advisories(BaseHTTPRequestHandler):
    """Answers like the OSV API: one advisory for one package."""

    findings: tuple[str, ...] = ()

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_vulnerable = query["package"]["name"] in self.findings
        body = json.dumps({"vulns": [ADVISORY]} if is_vulnerable else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def advisory_service(*findings: str) -> Iterator[str]:
    handler = type("ConfiguredAdvisories", (Advisories,), {"findings": findings})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def test_an_audit_reports_findings_with_its_exit_status() -> None:
    with advisory_service() as url:
        clean = make("audit", f"ARGS=--osv-url={url}")
    assert (clean.returncode, "No known vulnerabilities found" in clean.stderr) == (0, True)
    with advisory_service(VULNERABLE) as url:
        found = make("audit", f"ARGS=--osv-url={url}")
    assert found.returncode != 0
    assert ADVISORY["id"] in found.stdout
    assert "NOT audited" not in found.stderr


def test_an_audit_without_its_service_says_so_and_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = make("audit", f"ARGS=--osv-url=http://127.0.0.1:{port}/v1/query")
    assert done.returncode != 0
    assert "NOT audited" in done.stderr
    assert "known vulnerabilities" not in done.stdout + done.stderr
