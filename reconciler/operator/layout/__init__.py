"""One TableLayout: gathers facts, decides and carries out the next step, builds the status."""
