"""Benchmarks: promptmill beside others, and its data plane alone."""
