"""Recording and alerting rules: sound, documented, and proven by promtool where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.promql import DEPLOY, parse, reads, rule_queries, rules

_TESTS = DEPLOY / "prometheus" / "tests" / "alerts.test.yaml"
_PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
with_promtool = pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed")


def promtool(*arguments: str) -> str:
    assert _PROMTOOL is not None
    done = subprocess.run([_PROMTOOL, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@with_promtool
def test_promtool_takes_the_rules_and_the_configuration() -> None:
    folder = DEPLOY / "prometheus"
    promtool("check", "rules", str(folder / "recording.yaml"), str(folder / "alerts.yaml"))
    promtool("check", "config", "--syntax-only", str(folder / "prometheus.yaml"))


@with_promtool
def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(_TESTS))


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    proven = {
        case["alertname"]
        for group in yaml.safe_load(_TESTS.read_text())["tests"]
        for case in group.get("alert_rule_test", [])
        if case["exp_alerts"]
    }
    assert proven == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.parametrize(("name", "expr"), rule_queries(), ids=lambda value: value if " " not in value else "")
def test_every_rule_parses(name: str, expr: str) -> None:
    parse(expr)


def test_recorded_names_are_read_only_where_they_are_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    read = {metric for _, expr in rule_queries() for metric in reads(expr) if ":" in metric}
    assert read <= recorded


def test_every_alert_states_how_urgent_it_is_and_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
            assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
            assert rule["for"]


def test_every_alert_has_a_line_of_what_to_do_in_the_docs() -> None:
    page = (DEPLOY.parent / "docs" / "troubleshoot.md").read_text()
    alerts = page.partition("## Alerts")[2].partition("\n## ")[0]
    assert {rule["alert"] for rule in rules() if "alert" in rule} == set(re.findall(r"`(Penstock\w+)`", alerts))


def test_burn_alerts_cover_a_long_and_a_short_window() -> None:
    burns = [rule for rule in rules() if "Burn" in rule.get("alert", "") or "AtRisk" in rule.get("alert", "")]
    assert len(burns) == 5
    for rule in burns:
        assert len(reads(rule["expr"])) == 2, rule["alert"]
