"""Chat requests: strict JSON, schema, headers and `ChatRequest`."""
