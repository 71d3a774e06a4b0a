"""Delete files that take the place of others: what is read, written and removed."""
