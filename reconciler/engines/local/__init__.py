"""Runs rewriting and comparing tasks on this machine, each in a process of its own."""
