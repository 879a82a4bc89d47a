"""Kubernetes: the Helm chart, and the Kustomize base and overlays that are written from it."""
