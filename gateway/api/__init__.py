"""The public API apart from chat: models, feedback, health probes and the OpenAPI document."""
