"""One IcebergCatalog: connections, its listing, imports of query logs, and kept plans."""
