"""The engine as a Ray Serve application: one replica is one engine, front and core."""
