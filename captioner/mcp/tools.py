"""The tools, and the server that offers them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec, TypeVar

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from captioner import __version__
from captioner.errors import CaptionerError, reason_of
from captioner.files.destination import writing
from captioner.mcp.library import Library, Photo, captioned, failed
from captioner.overlay.render import render_overlay
from captioner.overlay.styles import DEFAULT_STYLE, PICTURE, styles_for
from captioner.results import Caption
from captioner.surrogates import escape_surrogates
from captioner.words.keywords import keywords_of

P = ParamSpec("P")
T = TypeVar("T")

_MOST_PHOTOS = 200
"""Photos in one answer, which an assistant has to read."""
_OVERLAY_WIDTH = 1200
_INSTRUCTIONS = (
    "Captions photos on this machine and shows where the model looked. Paths are absolute or relative to the "
    "folders that the person has allowed. Captions come from a small model: a low confidence means that the "
    "caption may well be wrong."
)

PhotoPath = Annotated[str, Field(description="path of a photo")]
FolderPath = Annotated[str, Field(description="path of a folder; . for the first that is allowed")]


class CaptionedPhoto(BaseModel):
    """A photo and its caption."""

    path: str
    caption: str
    confidence: float | None = Field(description="calibrated probability that the caption is good, 0 to 1")
    keywords: list[str] = Field(description="words of the caption that name something")


class CaptionedPhotos(BaseModel):
    """Some of the photos that were found."""

    photos: list[CaptionedPhoto]
    total: int = Field(description="photos found; ask for the rest with skip")
    failed: dict[str, str] = Field(description="photos that could not be captioned, and why")


def make_server(library: Library) -> MCPServer:
    """The server of the tools."""
    server = MCPServer(
        "captioner", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR", debug=False
    )

    def tool(title: str, *, writes: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
        return server.tool(
            title=title,
            annotations=ToolAnnotations(
                read_only_hint=not writes, destructive_hint=False, idempotent_hint=True, open_world_hint=False
            ),
        )

    @tool("Caption a photo")
    @_told
    def caption_image(path: PhotoPath) -> CaptionedPhoto:
        """The caption of a photo, its keywords, and how likely the caption is to be good."""
        photo = library.caption(path)
        if isinstance(photo.outcome, CaptionerError):
            raise photo.outcome
        return _shown(photo.name, photo.outcome)

    @tool("Caption a folder")
    @_told
    def caption_folder(folder: FolderPath = ".", skip: int = 0) -> CaptionedPhotos:
        """The captions of the photos in a folder and below it, 200 at a time, by name."""
        return _page(library.caption_folder(folder), skip)

    @tool("Search captions")
    @_told
    def search_captions(words: str, folder: FolderPath = ".", skip: int = 0) -> CaptionedPhotos:
        """The photos in a folder and below it whose captions have some of these words, best first. Words are
        found by their forms, synonyms and kinds; "a phrase" must be there as it is, -word must not. Photos
        without a caption are captioned first."""
        return _page(library.search(words, folder), skip)

    @tool("Show where the model looked", writes=True)
    @_told
    def overlay(
        path: PhotoPath,
        style: Annotated[str, Field(json_schema_extra={"enum": styles_for(PICTURE)})] = DEFAULT_STYLE,
        output: Annotated[str | None, Field(description="path of a new .png file to write it to")] = None,
    ) -> list[Image | str]:
        """A picture of where in the photo the model looked for each word of its caption."""
        photo = library.folders.read(library.folders.find(path))
        [caption] = library.captioner.caption_each(
            [photo], dataclasses.replace(library.options, attention=True)
        )
        if isinstance(caption, CaptionerError):
            raise caption
        buffer = io.BytesIO()
        render_overlay(photo, caption, style, width=_OVERLAY_WIDTH).save(buffer, "PNG")
        if output is not None:
            target = library.folders.place(output)
            target = target if target.suffix == ".png" else target.with_name(f"{target.name}.png")
            with writing(target):
                file = target.open("xb")  # never over what is there, nor through a link
                try:
                    with file:  # closed before it is removed: Windows removes no open file
                        file.write(buffer.getvalue())
                except OSError:  # a full disk: half a picture would keep the whole one away
                    target.unlink()
                    raise
        return [caption.text, Image(data=buffer.getvalue(), format="png")]

    return server


def _told(work: Callable[P, T]) -> Callable[P, T]:
    """Report errors that a user can cause to the assistant, instead of failing."""

    @wraps(work)
    def tool(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except CaptionerError as error:
            raise ToolError(escape_surrogates(str(error))) from error
        except OSError as error:
            text = f"{error.filename or 'a file'}: {reason_of(error)}"
            raise ToolError(escape_surrogates(text)) from error

    return tool


def _shown(name: str, caption: Caption) -> CaptionedPhoto:
    confidence = None if caption.confidence is None else round(caption.confidence, 3)
    keywords = keywords_of(caption.text)
    path = escape_surrogates(name)
    return CaptionedPhoto(path=path, caption=caption.text, confidence=confidence, keywords=keywords)


def _page(photos: list[Photo], skip: int) -> CaptionedPhotos:
    some = photos[max(skip, 0) :][:_MOST_PHOTOS]
    return CaptionedPhotos(
        photos=[_shown(name, caption) for name, caption in captioned(some)],
        total=len(photos),
        failed={escape_surrogates(name): str(error) for name, error in failed(some)},
    )
