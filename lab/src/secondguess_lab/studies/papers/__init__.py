"""One module a paper, each with a tuple `STUDIES`."""
