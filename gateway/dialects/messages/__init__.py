"""Anthropic's Messages API on the chat pipeline: its requests, answers, streams and errors."""
