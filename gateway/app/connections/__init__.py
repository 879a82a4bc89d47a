"""Connections of a process to others, from its settings: the listeners' certificates, the stores, deployments."""
