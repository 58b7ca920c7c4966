"""Metrics belong to one app, and clients cannot create time series."""

from tally.kit.metrics import Metrics


def count(metrics: Metrics, **labels: str) -> float | None:
    return metrics.registry.get_sample_value("tally_http_request_duration_seconds_count", labels)


def test_apps_have_separate_counters() -> None:
    one, other = Metrics(), Metrics()
    one.observe_request("GET", "/health", 200, 0.001)
    assert count(one, method="GET", route="/health", status="200") == 1
    assert count(other, method="GET", route="/health", status="200") is None


def test_requests_are_recorded_by_route_with_their_duration() -> None:
    metrics = Metrics()
    for seconds in (0.002, 0.02):
        metrics.observe_request("POST", "/devices/data", 200, seconds)
    labels = {"method": "POST", "route": "/devices/data", "status": "200"}
    assert count(metrics, **labels) == 2
    assert (
        metrics.registry.get_sample_value("tally_http_request_duration_seconds_sum", labels)
        == 0.022
    )
    assert (
        metrics.registry.get_sample_value(
            "tally_http_backend_duration_seconds_bucket", {"backend": "devices", "le": "0.005"}
        )
        == 1
    )


def test_an_unknown_method_is_recorded_as_other() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.observe_request(f"FOO{number}", "unmatched", 404, 0.001)
    assert count(metrics, method="other", route="unmatched", status="404") == 100
    assert metrics.render().decode().count("tally_http_request_duration_seconds_count{") == 1


def test_the_page_contains_process_and_kit_metrics() -> None:
    metrics = Metrics()
    metrics.requests_in_flight += 1
    page = metrics.render().decode()
    assert "tally_http_requests_in_flight 1.0" in page
    assert "process_resident_memory_bytes" in page
