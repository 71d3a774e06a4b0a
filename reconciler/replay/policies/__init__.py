"""Policies that a replay compares: each decides, after each batch, what is rewritten."""
