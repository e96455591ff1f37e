"""A page over the records of a guarded service: whether something has changed, when, and which images raised alarms.

`change` is the test, `stream` reads the records as they come, `estimates` estimates the accuracy, `routes` is the HTTP.
"""
