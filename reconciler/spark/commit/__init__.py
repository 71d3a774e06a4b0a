"""Tables and commits by Iceberg's Java library, as `engines.backend` asks for them."""
