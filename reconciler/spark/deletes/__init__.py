"""Delete files: what applies to which rows, and their conversion and compaction."""
