"""What SARIF 2.1.0 asks of the parts that the harvest writes, from its specification: names of sections in comments.

The schema of the standard allows much more. A report was held against that one by hand, too.
"""

from typing import Any

TEXT = {"type": "string", "minLength": 1}


def record(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    """An object that has no other properties than these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def rows(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


MESSAGE = record(("text",), text=TEXT)  # 3.11, 3.12: plain text ends with a sentence
RULE = record(("id",), id=TEXT, shortDescription=MESSAGE, helpUri={"type": "string", "format": "uri"})  # 3.49
DRIVER = record(("name",), name=TEXT, version=TEXT, rules=rows(RULE) | {"uniqueItems": True})  # 3.19
REGION = record(("startLine",), startLine={"type": "integer", "minimum": 1})  # 3.30
PLACE = record(("uri",), uri={"type": "string", "format": "uri-reference"})  # 3.4
LOCATION = record(
    ("physicalLocation",), physicalLocation=record((), artifactLocation=PLACE, region=REGION)
)  # 3.28, 3.29
SUPPRESSION = record(("kind",), kind={"enum": ["inSource", "external"]}, justification=TEXT)  # 3.35
RESULT = record(  # 3.27
    ("message",),
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    locations=rows(LOCATION),
    suppressions=rows(SUPPRESSION) | {"uniqueItems": True},
)
RUN = record(  # 3.14
    ("tool",),
    tool=record(("driver",), driver=DRIVER),  # 3.18
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=rows(RESULT),
)
LOG = record(  # 3.13
    ("version", "runs"),
    **{"$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"}, "runs": rows(RUN)},
)
