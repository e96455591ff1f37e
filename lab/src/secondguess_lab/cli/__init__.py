"""The commands `secondguess study` and `secondguess bench`."""
