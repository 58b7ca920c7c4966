"""Prometheus metrics of the webhook, the inbox, syncs, account deletions and the audit trail."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from tally.kit.metrics import Metrics

LAG_BUCKETS: Final = (
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)


class InboxMetrics:
    """Metrics of the inbox worker in this process."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.lag = Histogram(
            "tally_collect_event_lag_seconds",
            "Time from receipt to completion of a Strava event",
            registry=registry,
            buckets=LAG_BUCKETS,
        )
        self.retries = Counter(
            "tally_collect_event_retries",
            "Strava events that failed and were scheduled for a retry",
            registry=registry,
        )
        self.pending = Gauge(
            "tally_collect_inbox_events",
            "Strava events of the athletes who were due at the last poll",
            registry=registry,
        )
        self.parked = Counter(
            "tally_collect_events_parked",
            "Strava events parked until a relink or an operator, by reason",
            ("reason",),
            registry=registry,
        )
        self.unconfirmed = Counter(
            "tally_collect_events_unconfirmed",
            "Deauthorisation events that Strava did not confirm",
            registry=registry,
        )


class WebhookMetrics:
    """Metrics of the webhook in this process."""

    def __init__(self, metrics: Metrics) -> None:
        self.dropped = Counter(
            "tally_collect_webhook_events_dropped",
            "Webhook events dropped because their secret, subscription or athlete is unknown",
            ("reason",),
            registry=metrics.registry,
        )


class SyncMetrics:
    """Metrics of the sync worker in this process."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.due = Gauge(
            "tally_collect_syncs_due",
            "Athletes whose sync with Strava was due at the last poll, at most 200",
            registry=registry,
        )
        self.syncs = Counter(
            "tally_collect_syncs", "Completed syncs of athletes with Strava", registry=registry
        )
        self.pages = Counter(
            "tally_collect_sync_pages", "Pages of activities read by syncs", registry=registry
        )
        self.workouts = Counter(
            "tally_collect_sync_workouts", "Workouts written by syncs", registry=registry
        )
        self.failures = Counter(
            "tally_collect_sync_failures",
            "Syncs that failed and were scheduled for a retry",
            registry=registry,
        )
        self.gaps = Counter(
            "tally_collect_delivery_gaps",
            "Gaps in the deliveries of Strava events, after which all athletes are synced",
            registry=registry,
        )


class DeletionMetrics:
    """Metrics of account deletions. Each process reports all pending deletions: use `max`."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.pending = Gauge(
            "tally_collect_account_deletions_pending",
            "Account deletions in progress",
            registry=registry,
        )
        self.oldest = Gauge(
            "tally_collect_account_deletion_oldest_seconds",
            "Time since the request of the oldest account deletion in progress",
            registry=registry,
        )
        self.completed = Counter(
            "tally_collect_account_deletions_completed",
            "Account deletions completed by this process",
            registry=registry,
        )
        self.failures = Counter(
            "tally_collect_account_deletion_failures",
            "Steps of account deletions that failed and are retried",
            ["step"],
            registry=registry,
        )


def dropped_audit_events(metrics: Metrics) -> Counter:
    return Counter(
        "tally_collect_audit_events_dropped",
        "Audit events that were lost because the table was slow or unavailable",
        registry=metrics.registry,
    )
