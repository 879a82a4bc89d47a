"""The chat request: strict JSON, schema, headers and `ChatRequest`."""
