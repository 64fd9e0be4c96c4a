"""How a batch is cut into shards."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.serving import make_image

from captioner.folder.cluster.shards import Shard, cut
from captioner.folder.items import ListedImage
from captioner.folder.sources.uris import open_place


def test_shards_hold_each_image_once_and_change_little() -> None:
    found = [ListedImage(f"{number}.jpg", b"", f"{number}-1") for number in range(1000)]
    shards = cut(found, "model", 100)
    assert sorted(one.name for shard in shards for one in shard.images) == sorted(one.name for one in found)
    assert len(shards) == 16 and max(len(shard.images) for shard in shards) < 120
    files = {shard.file for shard in shards}
    assert {shard.file for shard in cut(found[::-1], "model", 100)} == files
    more = {shard.file for shard in cut([*found, ListedImage("new.jpg", b"", "1-1")], "model", 100)}
    assert len(files - more) == 1
    assert not files & {shard.file for shard in cut(found, "other model", 100)}
    odd = Shard("part", (ListedImage("latin-\udcfc.jpg", b"latin-\xfc.jpg", "1-1", "not a regular file"),))
    assert Shard.from_json(odd.to_json()) == odd


def test_copies_with_their_times_and_new_permissions_are_no_changes(tmp_path: Path) -> None:
    """A shard captions all its images again, without looking whether their content is new."""
    root, copy = tmp_path / "photos", tmp_path / "copy"
    root.mkdir()
    for number in range(3):
        (root / f"{number}.png").write_bytes(make_image(number))

    def files(place: Path) -> set[str]:
        listed = [one.name for one in place.iterdir()]
        found = list(open_place(str(place)).find())
        assert found == sorted(open_place(str(place), names=listed).find(), key=found.index)
        return {shard.file for shard in cut(found, "model", 100)}

    before = files(root)
    shutil.copytree(root, copy)  # keeps the times of modification, as cp -a and rsync -a do
    assert files(copy) == before
    (root / "0.png").chmod(0o600)
    assert files(root) == before
    os.utime(copy / "0.png")
    assert files(copy) != before
