"""Where the hub's files lie in the store: the folder layout of a huggingface_hub cache.

A repository has a folder `models--owner--repo`; in it `blobs/ETAG` are the files' contents and
`snapshots/COMMIT/NAME` are links to them. A link is made only for a blob that is whole and checked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from legato.files import sync_folder
from legato.models.choice import GgufChoice, choose, gguf_choices
from legato.models.disk import bytes_under

_FOLDER_PREFIX: Final = "models--"
_SEPARATOR: Final = "--"


class HubCache:
    """The hub's files in a model store, under the folder `root`, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def repositories(self) -> list[str]:
        """Name the repositories that have a folder here, as `owner/repo`."""
        folders = self._root.glob(f"{_FOLDER_PREFIX}*{_SEPARATOR}*")
        return sorted(folder.name.removeprefix(_FOLDER_PREFIX).replace(_SEPARATOR, "/", 1) for folder in folders)

    def blob(self, repository: str, etag: str) -> Path:
        """Say where the contents with an entity tag lie, or will."""
        return self._folder(repository) / "blobs" / etag

    def stored(self, repository: str) -> dict[GgufChoice, list[Path]]:
        """Map the models of a repository that are here whole to their files, in the newest commit that has them.

        The parts of a split file are of one commit always.
        """
        stored: dict[GgufChoice, list[Path]] = {}
        for snapshot in self._snapshots(repository):
            names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
            for choice in gguf_choices(names):
                if not choice.missing:
                    stored.setdefault(choice, [snapshot / name for name in choice.files])
        return stored

    def link(self, repository: str, commit: str, name: str, etag: str) -> None:
        """Give the contents with an entity tag their name in the snapshot of a commit."""
        link = self._folder(repository) / "snapshots" / commit / name
        blob = self.blob(repository, etag)
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(link.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(os.path.relpath(blob, link.parent))
            fresh.replace(link)
        except OSError:
            # Some file systems (exFAT drives) have no symbolic links: the snapshot then holds the contents itself.
            blob.replace(link)
        sync_folder(link.parent)

    def set_main(self, repository: str, commit: str) -> None:
        """Note which commit the main branch was at, for the hub's own tools."""
        ref = self._folder(repository) / "refs" / "main"
        ref.parent.mkdir(parents=True, exist_ok=True)
        fresh = ref.with_name("main.new")
        fresh.write_text(commit)
        fresh.replace(ref)

    def remove(self, repository: str, pick: str | None) -> int | None:
        """Remove a model, from every commit that has it.

        Where no whole model of the repository is left, its folder goes too, with what cut-off downloads left in it.

        Returns:
            The bytes freed, or None where nothing of the repository was here.

        Raises:
            LegatoError: The pick fits none of the models here, or more than one.
        """
        folder = self._folder(repository)
        if not folder.is_dir():
            return None
        before = bytes_under(folder)
        choices = list(self.stored(repository))
        if choices:
            self._unlink(repository, choose(choices, pick, repository).files)
        if not self.stored(repository):
            shutil.rmtree(folder)
            return before
        return before - bytes_under(folder)

    def remove_older(self, repository: str, commit: str, names: Sequence[str]) -> None:
        """Remove files from every commit but one, with the contents that no commit has any more."""
        self._unlink(repository, names, keep=commit)

    def _folder(self, repository: str) -> Path:
        return self._root / (_FOLDER_PREFIX + repository.replace("/", _SEPARATOR))

    def _snapshots(self, repository: str) -> list[Path]:
        """List the snapshots: the main branch's first, the others from new to old."""
        folder = self._folder(repository)
        if not (folder / "snapshots").is_dir():
            return []
        ref = folder / "refs" / "main"
        main = ref.read_text().strip() if ref.is_file() else ""
        return sorted(
            (folder / "snapshots").iterdir(),
            key=lambda snapshot: (snapshot.name == main, snapshot.stat().st_mtime_ns),
            reverse=True,
        )

    def _unlink(self, repository: str, names: Sequence[str], keep: str = "") -> None:
        snapshots = self._snapshots(repository)
        links = [snapshot / name for snapshot in snapshots if snapshot.name != keep for name in names]
        blobs = {link.resolve() for link in links if link.is_file()}
        for link in links:
            link.unlink(missing_ok=True)
        # Another name or commit may stand for the same contents.
        still_used = {path.resolve() for snapshot in snapshots for path in snapshot.rglob("*") if path.is_file()}
        for blob in blobs - still_used:
            blob.unlink(missing_ok=True)
