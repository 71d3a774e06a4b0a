"""The operator: watches, a queue of keys with due times, reconciles, the launcher, status."""
