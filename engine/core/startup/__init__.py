"""Parts of a core at its start: models, adapters, drafters, pool and runner, by the settings and the memory."""
