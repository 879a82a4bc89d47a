"""Choice between two models for a prompt: features, model, guard, calibration, training."""
