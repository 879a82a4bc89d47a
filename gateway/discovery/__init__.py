"""Discovery: which members a deployment has, by DNS, Kubernetes, Ray Serve or a list in the store."""
