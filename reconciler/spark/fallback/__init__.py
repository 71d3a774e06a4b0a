"""Rewrites by Spark's reader and writer: what `reconciler.rewrite` cannot write."""
