"""`layoutctl demo`: the whole loop on generated data, driven through the public verbs.

Nothing here decides anything about layouts: it makes data and queries, runs the verbs that a user
would run, and measures what Spark and the files say before and after.
"""
