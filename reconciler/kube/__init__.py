"""What is said to a Kubernetes API server, by whom, and how things are named there."""
