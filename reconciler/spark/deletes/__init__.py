"""Delete files in the JVM: what applies to which rows, entries of new ones, and bounds that lie."""
