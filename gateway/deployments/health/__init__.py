"""Health of deployments: outlier ejection, liveness by tokens, and bounded retries."""
