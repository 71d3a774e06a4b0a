"""Spark jobs: the only importer of pyspark. Executes plans with verified, exactly-once commits."""
