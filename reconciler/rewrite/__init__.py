"""What is known of rows without the engine that moves them: the witness of a rewrite."""
