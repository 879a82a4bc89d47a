"""The client matrix: current releases of clients against a running product, each in an environment of its own."""
