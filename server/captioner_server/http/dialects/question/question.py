"""A request for a caption, in the words of no protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from captioner.options import CaptionOptions


@dataclass(frozen=True, slots=True)
class Question:
    """A request for a caption, whatever its protocol."""

    image: bytes | None
    """None where nothing is asked yet."""
    options: CaptionOptions
    served_as: str
    """The model, by the name that it is served as; "" for the default."""
    model: str
    """The model, as the request names it."""
    prompt: str
    format: Any
    """None, "json" or a JSON schema."""
    stream: bool
    most_tokens: int | None
    """Most words of the caption, if the request says so."""
    stops: tuple[str, ...]
    """What ends the text before it is said."""
    format_field: str = "format"
    """The field of the request that holds the format, for errors."""
    function: str = ""
    """The function that the answer calls, with the format as the schema of its arguments; "" for none."""
    include_usage: bool = False
    """Whether a stream ends with how many tokens there were."""

    def size_of(self) -> int:
        """Its size in bytes."""
        return len(self.image or b"")
