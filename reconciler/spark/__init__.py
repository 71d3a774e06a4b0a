"""The engine of a JVM, only importer of pyspark: Iceberg's library commits, Spark runs tasks."""
