"""Methods that a paper compares itself with and that nobody should use otherwise."""
