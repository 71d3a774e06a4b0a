"""One TableLayoutPolicy: which tables it selects, their TableLayouts, and its summary."""
