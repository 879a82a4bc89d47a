"""Execution of compiled steps: model, thread pool and Medusa heads."""
