"""Surprise adequacy: how far an activation trace lies from those of the training images."""
