"""The labelling page: `session` leads through it, `store` keeps what people said, `routes` is its HTTP."""
