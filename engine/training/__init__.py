"""Training of the bundled models: data, model, optimizer steps and evaluation."""
