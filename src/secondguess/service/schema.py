"""What OpenAPI says of `POST /predict`, which reads its body itself because it must count it first."""

from __future__ import annotations

from typing import Any

__all__ = ["PREDICT"]

BINARY = {"type": "string", "format": "binary"}
NESTED = {"type": "array", "items": {}, "description": "Nested lists (H, W), (C, H, W) or (H, W, C)."}
SCALE = {"type": "number", "enum": [1, 255], "default": 1, "description": "The largest value that a pixel can have."}
NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}

RESULT = {
    "type": "object",
    "required": ["prediction", "class_name", "confidence", "p_value", "verdict", "action", "evidence", "likeliest"],
    "properties": {
        "prediction": {"type": "integer"},
        "class_name": {"type": "string"},
        "confidence": {"type": "number"},
        "p_value": {"type": "number", "description": "How often a nominal image is at least as suspicious."},
        "verdict": {"type": "array", "items": {"type": "string"}, "description": "One kind, or two, likelier first."},
        "action": {"type": "string", "enum": ["accept", "hedge", "ask", "refuse", "alarm"]},
        "evidence": {**NUMBERS, "description": "The p-value of each supervisor, the smallest first."},
        "anomalies": {**NUMBERS, "description": "Where there is an alarm: the probability of each kind of anomaly."},
        "likeliest": {"type": "array", "description": "[class, probability], the most probable first."},
        "probabilities": {"type": "array", "description": "Of all classes, where the action is `hedge`."},
    },
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _sentence(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": _json({"type": "object", "properties": {"detail": {"type": "string"}}}),
    }


PREDICT: dict[str, Any] = {
    "security": [{"bearer": []}],
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": BINARY},
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"image": {"type": "array", "items": BINARY}}}
            },
            "application/json": {
                "schema": {
                    "oneOf": [
                        {"type": "object", "required": ["image"], "properties": {"image": NESTED, "scale": SCALE}},
                        {
                            "type": "object",
                            "required": ["images"],
                            "properties": {"images": {"type": "array", "items": NESTED}, "scale": SCALE},
                        },
                    ]
                }
            },
        },
    },
    "responses": {
        "200": {
            "description": "A result for every image, in their order; recorded before this was sent.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {"request": {"type": "string"}, "results": {"type": "array", "items": RESULT}},
                }
            ),
        },
        "400": _sentence("The body is empty, incomplete, or not what its content type says."),
        "401": _sentence("The token is missing or wrong."),
        "408": _sentence("The request took too long to arrive."),
        "413": _sentence("The request, an image, or the number of images is too large."),
        "415": _sentence("The content type is not understood."),
        "422": _sentence("An image cannot be read, or an array has the wrong shape, type or range."),
        "503": _sentence("The service is at its limit, or cannot write records; `Retry-After` says when to come back."),
    },
}
