"""Commits work exactly once, settles what is unknown, and removes what nothing refers to."""
