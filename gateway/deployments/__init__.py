"""State of the deployments that can be called: forecasts, load reports, readiness, affinity."""
