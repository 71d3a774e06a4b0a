"""What the JVM knows of a snapshot's files, and where tasks run."""
