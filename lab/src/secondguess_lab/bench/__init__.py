"""Benchmarks: each compares our work with a floor or a peer in the same run, and returns plain rows."""
