"""Chooses: which files to rewrite, by which keys, in which sizes, and which housekeeping is due."""
