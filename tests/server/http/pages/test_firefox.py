"""The page in Firefox."""

import json

from support.browser import launch_firefox
from support.page import CAT, say_of, small_png
from support.serving import make_image


def test_in_firefox(server):
    with launch_firefox(server.server.http_url) as firefox:
        firefox.send_keys(".files", str(CAT))
        firefox.wait_for("!document.querySelector('.downloads').hidden")
        caption = say_of(server.model, CAT, alternatives=3)
        shown = firefox.run("[...document.querySelectorAll('.word bdi')].map((word) => word.textContent)")
        assert shown == [word.text for word in caption.words]
        painted = "document.querySelector('.photo canvas').getContext('2d').getImageData(0, 0, 20, 20).data"
        assert firefox.run(f"[...{painted}].length") == 1600
        firefox.run("document.querySelector('.camera').click()")
        firefox.wait_for("/captions a second/.test(document.querySelector('.rate').textContent)")
        assert firefox.run("document.querySelectorAll('.word').length") == 5
        assert firefox.run("document.querySelector('.status').textContent") == ""


def test_photos_dropped_in_firefox_become_a_gallery(server):
    photos = json.dumps([[f"{number}.png", small_png()] for number in range(3)])
    with launch_firefox(server.server.http_url) as firefox:
        firefox.run(
            f"""(() => {{ const photos = {photos};"""
            """
                const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
                const transfer = new DataTransfer();
                for (const [name, data] of photos)
                    transfer.items.add(new File([bytes(data)], name, {type: "image/png"}));
                document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
            })()"""
        )
        firefox.wait_for("document.body.textContent.includes('3 of 3 photos captioned')")
        assert firefox.run("document.querySelectorAll('.card').length") == 3


def test_a_folder_dropped_in_firefox_becomes_a_gallery(server, tmp_path):
    """Entries in Firefox have paths and readers of their own."""
    inside = tmp_path / "holiday" / "day two"
    inside.mkdir(parents=True)
    for number in range(3):
        (inside / f"{number}.png").write_bytes(make_image(number))
    (inside / "notes.txt").write_text("no photo")
    with launch_firefox(server.server.http_url) as firefox:
        firefox.drop(inside.parent)
        firefox.wait_for(
            "document.body.textContent.includes('3 of 3 photos captioned, 1 other file left out')"
        )
        names = firefox.run("[...document.querySelectorAll('.card .name')].map((name) => name.textContent)")
        assert names == [f"holiday/day two/{number}.png" for number in range(3)]
        firefox.run("document.querySelector('.add-menu').open = true")
        firefox.send_keys(".files", str(CAT))
        firefox.wait_for("!document.querySelector('.downloads').hidden")
