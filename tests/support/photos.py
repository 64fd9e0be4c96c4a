"""Photos with metadata."""

from __future__ import annotations

import io

from PIL import Image

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title><rdf:Alt><rdf:li>no keyword'
    "</rdf:li></rdf:Alt></dc:title><dc:subject><rdf:Bag>{}</rdf:Bag></dc:subject></rdf:Description></rdf:RDF>"
    "</x:xmpmeta>"
)


def photo_with(*keywords: str, format: str = "JPEG") -> bytes:
    """A small photo whose XMP has these keywords."""
    items = "".join(f"<rdf:li>{keyword}</rdf:li>" for keyword in keywords)
    target = io.BytesIO()
    Image.new("RGB", (8, 8)).save(target, format, xmp=XMP.format(items).encode())
    return target.getvalue()
