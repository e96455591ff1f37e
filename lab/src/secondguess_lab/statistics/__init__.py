"""Tests and diagrams that compare methods over many data sets, as papers do."""
