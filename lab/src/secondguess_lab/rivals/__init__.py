"""Methods that a paper compares itself with, kept for that comparison only."""
