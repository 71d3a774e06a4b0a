"""What was admitted: the operator's book, what live jobs hold, how namespaces share."""
