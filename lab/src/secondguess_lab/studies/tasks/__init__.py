"""The tasks of the studies: pure functions of data, settings and a seed.

Their sources are the code version of every result in a ledger, so an edit here makes all of them again.
"""
