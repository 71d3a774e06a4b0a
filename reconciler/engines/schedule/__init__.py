"""One run of a plan: its attempts and groups, what it may read, and what it leaves out later."""
