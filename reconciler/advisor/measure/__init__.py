"""Measures: what past rewrites saved, and the table before and after the chosen actions."""
