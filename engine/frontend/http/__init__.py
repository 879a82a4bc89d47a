"""HTTP server of the front: connections, the OpenAI endpoints, streaming, health and tracing."""
