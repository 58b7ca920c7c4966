"""Figures belong to an app, and clients cannot make up series."""

from tally.kit.metrics import Metrics


def count(metrics: Metrics, **labels: str) -> float | None:
    return metrics.registry.get_sample_value("tally_http_request_duration_seconds_count", labels)


def test_two_apps_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.observe_request("GET", "/health", 200, 0.001)
    assert count(one, method="GET", route="/health", status="200") == 1
    assert count(other, method="GET", route="/health", status="200") is None


def test_requests_are_counted_by_route_with_their_time() -> None:
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
            "tally_http_request_duration_seconds_bucket", labels | {"le": "0.005"}
        )
        == 1
    )


def test_a_made_up_method_is_other() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.observe_request(f"FOO{number}", "unmatched", 404, 0.001)
    assert count(metrics, method="other", route="unmatched", status="404") == 100
    assert len(metrics._request_series) == 0


def test_the_page_has_the_process_and_the_kits_figures() -> None:
    metrics = Metrics()
    metrics.requests_in_flight += 1
    page = metrics.render().decode()
    assert "tally_http_requests_in_flight 1.0" in page
    assert "process_resident_memory_bytes" in page
