"""The engine of a JVM, and the only importer of pyspark: Iceberg's library commits, Spark runs tasks."""
