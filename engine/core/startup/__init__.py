"""Parts of a core at its start: adapters, drafters and the KV pool, each by the settings and the memory."""
