"""Access to a Kubernetes API server: calls, identity, and names of objects."""
