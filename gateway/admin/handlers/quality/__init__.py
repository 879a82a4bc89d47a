"""Endpoints about the quality of models: labels, and thresholds of cascades."""
