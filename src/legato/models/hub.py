"""Models from the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from huggingface_hub import HfApi, constants, get_hf_file_metadata, get_token, hf_hub_url

from legato import __version__
from legato.errors import LegatoError
from legato.models.choice import GgufChoice, choose, gguf_choices
from legato.models.disk import readable_bytes, require_space
from legato.models.hub_cache import HubCache
from legato.models.hub_failures import hub_failures
from legato.models.partial_file import partial_path
from legato.models.reference import HubReference
from legato.models.transfer import RemoteFile, download

# Who asks, as the hub sees it.
_NAME: Final = "legato"
# A commit and an entity tag become file names, and they come from a server.
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_ETAG: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")


class Hub:
    """The hub that the environment names: HF_ENDPOINT says where it is, HF_TOKEN who asks."""

    def __init__(self) -> None:
        # Read now and not when huggingface_hub was imported: a setting may have come since.
        self._endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")):
            raise LegatoError(f"HF_ENDPOINT is {self._endpoint!r}; it must begin with https:// or http://.")

    def pull(self, reference: HubReference, cache: HubCache, force: bool, say: Callable[[str], None]) -> GgufChoice:
        """Bring a model into the store, and return what was chosen of the repository's models.

        Args:
            reference: Which model.
            cache: Where it goes.
            force: Download it even where its contents are there already.
            say: Takes a line about what is going on.

        Raises:
            LegatoError: There is no such model, the hub cannot be reached, or the download is not what was declared.
            OSError: The disk fails.
        """
        repository = reference.repository
        with hub_failures(repository, self._endpoint):
            choice, commit = self._choose(reference)
            files = [self._declared(repository, name, commit) for name in choice.files]
            self._fetch(repository, files, cache, force, say)
        for file in files:
            cache.link(repository, commit, file.name, file.etag)
        cache.set_main(repository, commit)
        cache.remove_older(repository, commit, choice.files)
        return choice

    def _choose(self, reference: HubReference) -> tuple[GgufChoice, str]:
        """Choose among the repository's files; return the choice and the newest commit, which has it."""
        repository = reference.repository
        api = HfApi(endpoint=self._endpoint, library_name=_NAME, library_version=__version__)
        try:
            info = api.model_info(repository, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # What huggingface_hub's parsing raises when the answer is a login page or somebody else's JSON.
            raise self._not_a_hub() from error
        if info.sha is None or not _COMMIT.fullmatch(info.sha):
            raise self._not_a_hub()
        names = [sibling.rfilename for sibling in info.siblings or ()]
        choice = choose(gguf_choices(names), reference.pick, repository)
        if choice.missing:
            raise LegatoError(
                f"{repository} has {choice.stem} in parts and lacks {choice.missing[0]}; choose another file of it."
            )
        return choice, info.sha

    def _declared(self, repository: str, name: str, commit: str) -> RemoteFile:
        url = hf_hub_url(repository, name, revision=commit, endpoint=self._endpoint)
        metadata = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT, endpoint=self._endpoint)
        if metadata.size is None or not _ETAG.fullmatch(metadata.etag or ""):
            raise self._not_a_hub()
        return RemoteFile(name, metadata.etag or "", url, metadata.size)

    def _fetch(
        self, repository: str, files: list[RemoteFile], cache: HubCache, force: bool, say: Callable[[str], None]
    ) -> None:
        blobs = {cache.blob(repository, file.etag): file for file in files}
        wanted = {blob: file for blob, file in blobs.items() if force or not blob.exists()}
        if not wanted:
            return
        total_bytes = sum(file.size_bytes for file in wanted.values())
        begun_bytes = sum(path.stat().st_size for path in map(partial_path, wanted) if path.exists())
        parts = f" in {len(wanted)} parts" if len(wanted) > 1 else ""
        first_name = next(iter(wanted.values())).name
        say(f"Pulling {repository}: {first_name} ({readable_bytes(total_bytes)}{parts})")
        folder = next(iter(wanted)).parent
        folder.mkdir(parents=True, exist_ok=True)
        require_space(folder, total_bytes - begun_bytes)
        headers = _headers()
        for blob, file in wanted.items():
            download(file, blob, headers)

    def _not_a_hub(self) -> LegatoError:
        return LegatoError(
            f"{self._endpoint} does not answer like a Hugging Face hub; check HF_ENDPOINT and whether the network "
            "wants a login first."
        )


def _headers() -> dict[str, str]:
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {"user-agent": f"{_NAME}/{__version__}"} | ({"authorization": f"Bearer {token}"} if token else {})
