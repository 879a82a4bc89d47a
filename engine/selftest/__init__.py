"""Self-tests of an engine on any model: speculation, quantization and step times."""
