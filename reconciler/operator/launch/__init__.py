"""The start of jobs: which table is next, whether its job fits, and the Job itself."""
