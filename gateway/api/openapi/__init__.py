"""The public API as an OpenAPI document."""
