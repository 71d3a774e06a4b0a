"""The engine of a JVM, the only importer of pyspark: Iceberg's library commits, Spark runs tasks."""
