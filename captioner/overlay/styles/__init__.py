"""The styles of an overlay: how a word's map is painted over the photo. A style is a file and a line here."""

from __future__ import annotations

from captioner.overlay.styles import contour, heatmap, panels, spotlight
from captioner.overlay.styles.style import Style

PAINTED: dict[str, Style] = {
    "panels": panels.STYLE,
    "heatmap": heatmap.STYLE,
    "contour": contour.STYLE,
    "spotlight": spotlight.STYLE,
}
"""Styles that paint a map over the photo, so that they serve still and moving pictures."""

STYLES = (*PAINTED, "matrix")
"""All that `render_overlay` takes."""
