"""A page over the records of a guarded service: has something changed, when, and what do the alarms look like?

`change` is the test, `stream` reads the records as they come, `estimates` guesses the accuracy, `routes` is the HTTP.
"""
