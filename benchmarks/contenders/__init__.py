"""Child scripts, one per contender: each is a fresh process with an environment of its own."""
