"""Grafana's dashboards, written by `python -m deploy.grafana`."""
