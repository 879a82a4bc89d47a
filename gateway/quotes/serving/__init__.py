"""The endpoint that gives quotes, and the stage that requests with a quote pass."""
