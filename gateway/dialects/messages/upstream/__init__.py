"""Deployments that speak Anthropic's Messages API: chat requests become theirs, and their answers chat completions."""
