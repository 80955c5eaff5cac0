"""Models from the Hugging Face hub."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from huggingface_hub import HfApi, constants, get_hf_file_metadata, get_token, hf_hub_url

from legato.errors import LegatoError
from legato.models.choice import GgufChoice, choose, gguf_choices
from legato.models.disk import readable_bytes, require_space
from legato.models.hub_failures import hub_failures
from legato.models.partial_file import partial_path
from legato.models.transfer import RemoteFile, download

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from legato.models.hub_cache import HubCache
    from legato.models.reference import HubReference

# Who asks, as the hub sees it.
_NAME: Final = "legato"
# A commit and an entity tag become file names, and they come from a server.
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ETAG: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")


@dataclass(frozen=True)
class _HubFile:
    """One file to fetch: its name in the repository, its entity tag, and where and what its contents are."""

    name: str
    etag: str
    remote: RemoteFile


class Hub:
    """The hub that the environment names: HF_ENDPOINT says where it is, HF_TOKEN who asks."""

    def __init__(self) -> None:
        # Read now and not when huggingface_hub was imported: a setting may have come since.
        self._endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")):
            raise LegatoError(f"HF_ENDPOINT is {self._endpoint!r}; it must begin with https:// or http://.")

    def pull(self, reference: HubReference, cache: HubCache, force: bool, say: Callable[[str], None]) -> GgufChoice:
        """Bring a model into the store.

        Args:
            reference: Which model.
            cache: Where it goes.
            force: Download it even where its contents are there already.
            say: Takes a line about what is going on.

        Returns:
            What was chosen of the repository's models.

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
        api = HfApi(endpoint=self._endpoint, library_name=_NAME, library_version=version(_NAME))
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

    def _declared(self, repository: str, name: str, commit: str) -> _HubFile:
        url = hf_hub_url(repository, name, revision=commit, endpoint=self._endpoint)
        metadata = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT, endpoint=self._endpoint)
        etag, size_bytes = metadata.etag or "", metadata.size
        if size_bytes is None or not _ETAG.fullmatch(etag):
            raise self._not_a_hub()
        # Large files have their SHA-256 as entity tag; git's own objects, which are small, have something else.
        sha256 = etag if _SHA256.fullmatch(etag) else None
        return _HubFile(name, etag, RemoteFile(name, url, size_bytes, sha256))

    def _fetch(
        self, repository: str, files: list[_HubFile], cache: HubCache, force: bool, say: Callable[[str], None]
    ) -> None:
        wanted = [file for file in files if force or not cache.blob(repository, file.etag).exists()]
        if not wanted:
            return
        total_bytes = sum(file.remote.size_bytes for file in wanted)
        parts = f" in {len(wanted)} parts" if len(wanted) > 1 else ""
        say(f"Pulling {repository}: {wanted[0].name} ({readable_bytes(total_bytes)}{parts})")
        destinations = [cache.blob(repository, file.etag) for file in wanted]
        destinations[0].parent.mkdir(parents=True, exist_ok=True)
        require_space(destinations[0].parent, total_bytes - _begun_bytes(destinations))
        headers = _headers()
        for file, destination in zip(wanted, destinations, strict=True):
            download(file.remote, destination, headers)

    def _not_a_hub(self) -> LegatoError:
        return LegatoError(
            f"{self._endpoint} does not answer like a Hugging Face hub; check HF_ENDPOINT and whether the network "
            "wants a login first."
        )


def _headers() -> dict[str, str]:
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {"user-agent": f"{_NAME}/{version(_NAME)}"} | ({"authorization": f"Bearer {token}"} if token else {})


def _begun_bytes(destinations: list[Path]) -> int:
    partials = map(partial_path, destinations)
    return sum(partial.stat().st_size for partial in partials if partial.exists())
