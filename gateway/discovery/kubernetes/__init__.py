"""EndpointSlices of a Kubernetes Service: listed once, then watched."""
