"""Table Layout Reconciler: declarative physical layout for Apache Iceberg tables."""

__version__ = "0.1.0"
