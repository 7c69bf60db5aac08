# SPDX-License-Identifier: MIT
"""The metrics page of a real rescd, read by the parsers that Prometheus' own client library has."""

import os
import re
import urllib.error
import urllib.request

import pytest
from harness import TOP, metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

CONFIG = {
    "resources": {
        "payments": {
            "breaker": {"consecutive": 5, "cooldown": "5s"},
            "retry": {"budget": {"capacity": 20}},
            "bulkhead": {"limit": 8},
        },
        "stock:eu-1": {"breaker": {"failure_rate": 0.5}},
    }
}

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get(url, accept=None, method="GET"):
    request = urllib.request.Request(url, method=method, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.headers, response.read().decode()


def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


@pytest.fixture
def rescd(host):
    return host(CONFIG) if callable(host) else host


def test_both_dialects_parse_and_say_the_same(rescd):
    headers, text = get(rescd.metrics_url)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    headers, om = get(rescd.metrics_url, OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert om.endswith("# EOF\n")
    a, b = samples(parse_text(text)), samples(parse_openmetrics(om))
    assert a.keys() == b.keys()
    for family in parse_text(text):
        assert family.documentation and family.type != "unknown", family.name


def test_J3_all_series_are_there_from_the_start(rescd):
    page = samples(parse_text(get(rescd.metrics_url)[1]))
    names = {labels["resource"] for _, pairs in page if "resource" in (labels := dict(pairs))}
    assert names == set(CONFIG["resources"])
    per_resource = {n: {(s, tuple(p for p in pairs if p[0] != "resource")) for s, pairs in page if ("resource", n) in pairs} for n in names}
    first, *others = per_resource.values()
    assert all(other == first for other in others)
    for (name, pairs), value in page.items():
        if name.endswith("_total") and ("resource", "payments") in pairs:
            assert value == 0, name
    assert page[("resc_retry_tokens", (("resource", "payments"),))] == 20
    assert page[("resc_permits_limit", (("resource", "payments"),))] == 8
    assert page[("resc_config_reload_success", ())] == 1


def manual(name):
    with open(os.path.join(TOP, "docs", name), encoding="utf-8") as file:
        return file.read()


def test_the_manual_names_every_metric_and_every_counter(rescd):
    families = list(parse_openmetrics(get(rescd.metrics_url, OPENMETRICS)[1]))
    named = set(re.findall(r"^\.It Li (resc_\w+)", manual("rescd.8"), re.M))
    suffix = {"counter": "_total", "info": "_info"}
    assert {f.name + suffix.get(f.type, "") for f in families} == named
    labels = {m[0]: set(filter(None, m[1].split(","))) for m in re.findall(r"^\.It Li (resc_\w+)(?:{([\w,]*)})? Ta", manual("rescd.8"), re.M)}
    for family in families:
        for sample in family.samples:
            if family.type != "histogram":
                assert set(sample.labels) == labels[sample.name], sample.name
    counters = re.findall(r"^\.It Fa (\w+) Ta", manual("resc_counters.3"), re.M)
    assert counters == list(rescd.snapshot()["resources"][0]["counters"])


def test_a_guard_in_shadow_mode_is_told_from_one_that_refuses(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 1, "mode": "shadow"}, "bulkhead": {"limit": 1}}}})
    rescd.worker().fail("payments", 3)
    page = rescd.scrape()
    assert metric(page, "resc_breaker_state", resource="payments") == 1
    assert metric(page, "resc_policy_mode", resource="payments", policy="breaker") == 1
    assert metric(page, "resc_policy_mode", resource="payments", policy="bulkhead") == 2
    assert metric(page, "resc_policy_mode", resource="payments", policy="rate") == 0
    assert metric(page, "resc_would_refuse_total", resource="payments", reason="open") == 2
    assert metric(page, "resc_refusals_total", resource="payments", reason="open") == 0


def test_histograms_add_up(rescd):
    buckets = [s for f in parse_text(get(rescd.metrics_url)[1]) for s in f.samples if s.name == "resc_latency_seconds_bucket"]
    edges = [float(s.labels["le"]) for s in buckets if s.labels["resource"] == "payments"]
    assert edges == sorted(edges) and edges[-1] == float("inf") and len(set(edges)) == len(edges)


def test_only_what_is_there(rescd):
    root = rescd.metrics_url.rsplit("/metrics", 1)[0]
    assert get(root + "/healthz")[1] == "ok\n"
    assert get(rescd.metrics_url, method="HEAD")[1] == ""
    for path in ("/", "/metrics/", "/metricsx", "/../etc/passwd", "/%2e%2e"):
        with pytest.raises(urllib.error.HTTPError) as error:
            get(root + path)
        assert error.value.code == 404
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(urllib.error.HTTPError) as error:
            get(rescd.metrics_url, method=method)
        assert error.value.code == 405


def test_J3_removed_series_vanish_and_a_failed_reload_shows(rescd):
    smaller = {"resources": {"payments": CONFIG["resources"]["payments"]}}
    rescd.load(smaller)
    page = get(rescd.metrics_url)[1]
    assert "stock" not in page and "payments" in page
    with open(rescd.config_path, "w", encoding="utf-8") as file:
        file.write('{"resources": ')
    assert not rescd.reload()["ok"]
    page = samples(parse_text(get(rescd.metrics_url)[1]))
    assert page[("resc_config_reload_success", ())] == 0
    assert page[("resc_config_reloads_failed_total", ())] == 1
    rescd.load(CONFIG)
    page = samples(parse_text(get(rescd.metrics_url)[1]))
    assert page[("resc_config_reload_success", ())] == 1
    assert ("resc_breaker_state", (("resource", "stock:eu-1"),)) in page
