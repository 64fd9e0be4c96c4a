"""An image and what people say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """One image with its human captions, or with words for what it shows."""

    name: str
    """File name, below `filepath` where a Karpathy file gives one."""
    captions: tuple[str, ...]
    """As written, none of them empty; none at all for an image that has words."""
    split: str
    """Empty where the file does not say."""
    objects: tuple[str, ...] = ()
    """Categories that are in the image, where the file says."""
    image_id: int | None = None
    """COCO's number of the image, where the file says."""
    words: tuple[str, ...] = ()
    """Of a labelled image: what it shows, the most exact first."""

    @property
    def key(self) -> str:
        """What captions are matched by: the file name without folder and extension."""
        return image_key(self.name)


def image_key(name: str) -> str:
    """The file name in a path, without extension: photos are converted and moved, but keep that."""
    return PurePath(name).name.rpartition(".")[0] or PurePath(name).name
