"""The JVM: how a session starts, is configured and is measured, and Java objects in Python."""
