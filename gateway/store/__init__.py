"""Stores for state that outlives a process or is shared by replicas: SQLite file, Redis."""
