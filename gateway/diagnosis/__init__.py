"""Diagnosis of a slow gateway: the stage, its cause, and the policy line to change."""
