"""The start of jobs: whether one more fits, how namespaces share slots, and the Job itself."""
