"""Commits in Python over pyiceberg's catalogs: one request each, without a JVM."""
