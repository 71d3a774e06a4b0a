"""Carries out a plan: reads inputs, has groups rewritten, and looks at what was written."""
