"""Pages for people, served to this machine only: the labelling page, and what any such page needs.

`access` and `server` know nothing of labelling; `store` keeps what people said; `labelling` is the session, `routes`
its HTTP, `static` its page. Everything here is imported when a page is wanted, never before.
"""
