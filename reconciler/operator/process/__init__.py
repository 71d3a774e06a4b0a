"""The process around the reconciles: its entry, watches, queue, probes, logs and metrics."""
