"""The first minute: the greeting, a finished report to look at, and what is missing on this machine.

Modules are imported one by one from here, since the greeting must take no time.
"""
