"""Overlay styles: how the map of a word is painted over the photo. A style is one file and one line here."""

from __future__ import annotations

from captioner.overlay.styles import contour, heatmap, panels, spotlight
from captioner.overlay.styles.style import Style

PAINTED: dict[str, Style] = {
    "panels": panels.STYLE,
    "heatmap": heatmap.STYLE,
    "contour": contour.STYLE,
    "spotlight": spotlight.STYLE,
}
"""Styles that paint a map over the photo, for still and moving pictures."""

STYLES = (*PAINTED, "matrix")
"""All styles of `render_overlay`."""
