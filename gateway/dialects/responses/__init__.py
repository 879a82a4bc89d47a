"""OpenAI's Responses API: what clients of `/v1/responses` send and get, and deployments that speak it."""
