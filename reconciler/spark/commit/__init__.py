"""Tables and commits by Iceberg's Java library, as `engines.table` asks for them."""
