"""Formats the text of captions for output. The state keeps captions as the model gave them, so that
changing the wording needs no captioning."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import PurePosixPath

from captioner.errors import OptionsError
from captioner.folder.transform import Record
from captioner.options import check_style
from captioner.words.alt_text import alt_text, capitalized, neutral_keywords, sentence, without_opening

_FIELDS = ("caption", "name", "stem", "folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """Text changes, applied in this order. Raises `OptionsError` for an invalid template."""

    style: str = "caption"
    """"caption", as the model gave it, or "alt": as alt text (`captioner.words.alt_text`)."""
    drop_openings: bool = False
    """Remove "a photo of", "there is" and similar phrases from the start."""
    capitalize: bool = False
    """Capitalize the first letter."""
    sentence: bool = False
    """Capitalize the first letter and end with the full stop of the script."""
    template: str = "{caption}"
    """Text with the fields {caption}, {name}, {stem} and {folder} of the image."""
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        check_style(self.style, "--style")
        try:
            parts = list(string.Formatter().parse(self.template))
        except ValueError as error:
            raise OptionsError(f"--template: {error}", "template") from None
        known = ", ".join(f"{{{name}}}" for name in _FIELDS)
        if all(field is None for _, field, _, _ in parts):
            raise OptionsError(f"--template has none of {known}: all photos would get one text", "template")
        for _, field, form, conversion in parts:
            if field is not None and (field not in _FIELDS or form or conversion):
                given = field + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                raise OptionsError(f"--template knows {known}, not {{{given}}}", "template")

    def apply(self, text: str, name: str) -> str:
        """The text to write for the caption of the image `name`."""
        if self.style == "alt":
            text = alt_text(text)
        elif self.drop_openings:
            text = without_opening(text)
        if self.sentence:
            text = sentence(text)
        elif self.capitalize:
            text = capitalized(text)
        path = PurePosixPath(name)
        folder = path.parent.name
        text = self.template.format(caption=text, name=path.name, stem=path.stem, folder=folder)
        return f"{self.prefix}{text}{self.suffix}"

    def transform(self, record: Record) -> Record:
        """The record with its caption reworded, and with alternatives and keywords in the style; failures are
        unchanged."""
        if "caption" not in record:
            return record
        changed = {**record, "caption": self.apply(record["caption"], record["image"])}
        if self.style == "alt":
            if "alternatives" in record:
                changed["alternatives"] = [
                    {**other, "caption": alt_text(other["caption"])} for other in record["alternatives"]
                ]
            if "keywords" in record:
                changed["keywords"] = neutral_keywords(record["keywords"])
        return changed
