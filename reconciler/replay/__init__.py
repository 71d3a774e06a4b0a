"""What a recorded workload would have cost under other policies: a replay that touches nothing."""
