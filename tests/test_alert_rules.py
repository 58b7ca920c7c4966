"""The alert rules in `deploy/` are valid, and each fires when it should: promtool says so.

The rules and the Grafana dashboard query only metrics that an instance exports.

A case has the samples of each series per minute, in Prometheus' notation: `a+bxn` is a, and n more
samples that each increase by b.
"""

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tally.app import Application, open_application
from tally.settings import Settings
from tests.needs import need_program

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES = (DEPLOY / "prometheus-rules.yaml").read_text(encoding="utf-8")
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
FEED_AGE = "tally_cricket_feed_age_seconds"
TO_PUSH = "tally_cricket_feed_to_push_seconds_bucket"
CONFIRMED = "tally_cricket_activities_confirmed_ratio"
HTTP = "tally_http_request_duration_seconds_count"
DELETION_AGE = "tally_collect_account_deletion_oldest_seconds"
LOST_EVENTS = "tally_collect_audit_events_dropped_total"
LAST_SWEEP = 'tally_job_last_run_timestamp_seconds{job_name="ttl-sweep"}'
NAN = " ".join(["NaN"] * 41)
FIRING: list[tuple[str, dict[str, str]]] = [
    ("TallyErrors", {HTTP + '{status="500"}': "0+2x40", HTTP + '{status="200"}': "0+98x40"}),
    ("TallyJobLate", {LAST_SWEEP: "0x40"}),
    ("TallyExternalServiceDown", {"tally_breaker_state": "2x40"}),
    # The poller gets no response; the other instance does not poll.
    (
        "TallyCricketFeedOld",
        {
            FEED_AGE + '{instance="a"}': "0+60x40",
            FEED_AGE + '{instance="b"}': NAN,
        },
    ),
    # A tenth of the updates take more than 30 s.
    (
        "TallyCricketPushesSlow",
        {TO_PUSH + '{le="30.0"}': "0+9x40", TO_PUSH + '{le="60.0"}': "0+10x40"}
        | {TO_PUSH + '{le="+Inf"}': "0+10x40"},
    ),
    ("TallyCricketActivitiesUnconfirmed", {CONFIRMED: "0.79x40"}),
    ("TallyCollectAccountDeletionLate", {DELETION_AGE: "86000+60x40"}),
    ("TallyCollectAuditEventsLost", {LOST_EVENTS: "0+1x40"}),
    ("TallyStoreErrors", {"tally_store_operation_errors_total": "0+1x40"}),
    ("TallyStoreDamaged", {"tally_store_damaged": "0x30 1x10"}),
    ("TallyStoreSweepPaused", {"tally_store_sweep_paused": "0x10 1x30"}),
]
SILENT: list[tuple[str, dict[str, str]]] = [
    ("TallyErrors", {HTTP + '{status="500"}': "0+1x40", HTTP + '{status="200"}': "0+199x40"}),
    ("TallyJobLate", {LAST_SWEEP: "0+60x40"}),
    ("TallyExternalServiceDown", {"tally_breaker_state": "1x40"}),
    # Another instance has taken over from the one that gets no response.
    (
        "TallyCricketFeedOld",
        {FEED_AGE + '{instance="a"}': "0+60x40", FEED_AGE + '{instance="b"}': "60x40"},
    ),
    (
        "TallyCricketPushesSlow",
        {TO_PUSH + '{le="30.0"}': "0+96x40", TO_PUSH + '{le="60.0"}': "0+100x40"}
        | {TO_PUSH + '{le="+Inf"}': "0+100x40"},
    ),
    ("TallyCricketActivitiesUnconfirmed", {CONFIRMED: "0.81x40"}),
    # There is no match, so there are no activities.
    ("TallyCricketActivitiesUnconfirmed", {CONFIRMED: NAN}),
    ("TallyCollectAccountDeletionLate", {DELETION_AGE: "0+60x40"}),
    ("TallyCollectAuditEventsLost", {LOST_EVENTS: "7x40"}),
    ("TallyStoreErrors", {"tally_store_operation_errors_total": "7x40"}),
    ("TallyStoreDamaged", {"tally_store_damaged": "0x40"}),
    ("TallyStoreSweepPaused", {"tally_store_sweep_paused": "0x30 1x10"}),
]


def rule_test(alert: str, series: dict[str, str], *, is_firing: bool) -> dict[str, Any]:
    """Return a test of promtool: whether an alert fires after 40 minutes of these samples."""
    return {
        "name": f"{alert} fires" if is_firing else f"{alert} is silent",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": "40m",
                "exp_samples": [{"labels": "{}", "value": 1}] if is_firing else [],
            }
        ],
    }


def test_the_alert_rules_are_valid_and_fire(tmp_path: Path) -> None:
    promtool = need_program("promtool", "prometheus")
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert {alert for alert, _ in FIRING} == {alert for alert, _ in SILENT} == set(alerts)
    (tmp_path / "rules.yml").write_text(RULES, encoding="utf-8")
    tests = [rule_test(*case, is_firing=True) for case in FIRING]
    tests += [rule_test(*case, is_firing=False) for case in SILENT]
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(content), encoding="utf-8")
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        result = subprocess.run(
            [promtool, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if result.returncode:
            pytest.fail(result.stdout + result.stderr, pytrace=False)


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    """An instance with all backends."""
    async with open_application(Settings(data_dir=tmp_path / "data")) as application:
        yield application


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


async def test_rules_and_dashboard_query_only_exported_metrics(application: Application) -> None:
    exported = {"up"}
    for metric in application.metrics.registry.collect():
        exported.add(metric.name)
    queried = {
        re.sub(r"_(total|count|sum|bucket)$", "", name)
        for text in (RULES, *dashboard_queries())
        for name in re.findall(r"(?:tally|process)_[a-z_]+", text)
    }
    assert len(queried) > 20
    assert queried - exported == set()


def test_the_dashboard_shows_each_panel_in_a_place_of_its_own() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for position in [panel["gridPos"]]
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(query.count("{") == query.count("}") for query in dashboard_queries())


async def test_a_busy_instance_exports_at_most_1500_series(application: Application) -> None:
    """Every route was used, with a success and a client error."""
    for api in application.apis:
        for endpoint in api.endpoints:
            path = f"/{api.name}{endpoint.path}"
            for status in (endpoint.status, 400):
                application.metrics.observe_request(endpoint.method, path, status, 0.01)
    for job in application.jobs:
        await application.job_runner().run(job.name)
    page = application.metrics.render().decode()
    series = [line for line in page.splitlines() if line and not line.startswith("#")]
    assert len(series) <= 1_500, sorted({re.split(r"[{ ]", line)[0] for line in series})
