"""Construction of models from checkpoints."""
