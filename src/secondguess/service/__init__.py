"""A guard behind HTTP: what comes in is checked, judged in small batches, written down, and only then answered.

`limits` and `reading` turn a request into images or into a sentence with a 4xx status, `batching` puts requests
together, `records` keeps the answers in a `database`, `metrics` counts, `api` is the HTTP, `server` assembles a service
from the folder of a guard and runs it, and `workers` runs several. `stream` judges without HTTP what `stream_sources`
bring, and `once` keeps every id of theirs once.
"""
