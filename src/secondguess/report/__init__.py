"""Pages for people: one self-contained HTML file, no script, no network."""

from secondguess.report.junit import Case, junit_xml
from secondguess.report.page import render
from secondguess.report.parts import Chart, Gallery, Part, Table, Text
from secondguess.report.pictures import data_uri

__all__ = ["Case", "Chart", "Gallery", "Part", "Table", "Text", "data_uri", "junit_xml", "render"]
