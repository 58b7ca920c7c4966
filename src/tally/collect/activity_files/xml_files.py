"""Detects whether an XML file is GPX or TCX by its root element."""

from tally.collect.activity_files.gpx import parse_gpx
from tally.collect.activity_files.tcx import parse_tcx
from tally.collect.activity_files.xml_reader import XmlReader
from tally.collect.model.files import ParsedFile, clean_label
from tally.errors import Invalid


def parse_xml(content: bytes, file_id: str) -> ParsedFile:
    reader = XmlReader(content)
    root = next((reader.path[0] for _ in reader), "")
    if root == "gpx":
        return parse_gpx(content, file_id)
    if root == "TrainingCenterDatabase":
        return parse_tcx(content, file_id)
    raise Invalid(
        f"The XML must be GPX or TCX, not {clean_label(root)[:64] or 'empty'}",
        code="unknown_file_format",
    )
