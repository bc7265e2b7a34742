"""Share a memory on the Hugging Face Hub: `push` uploads its bundle and its card, `pull` brings the bundle back.

A bundle is safetensors, Parquet and JSON; nothing that is pulled is executed, and it is checked by its digests before
it is put in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recollect.errors import UserError
from recollect.memory.bundle.folder import ABOUT, read_bundle, write_bundle

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from recollect.memory.memory import Memory

FILES = [ABOUT, "*.safetensors", "*.parquet"]


def push(memory: Memory, repository: str, *, card: str | None = None, public: bool = False) -> str:
    """Upload a memory, with all it has remembered, and its card to a repository "owner/name"; return its address.

    All files arrive in one commit. The repository is made if it is not there; it is private unless `public`, since a
    memory contains its facts. The card is by default that of `memory.card()`.
    """
    api = _api()
    from huggingface_hub import CommitOperationAdd

    text = (memory.card() if card is None else card).encode()
    with TemporaryDirectory() as folder, _explained(repository):
        memory.save(Path(folder) / "memory")
        files = sorted((Path(folder) / "memory").iterdir())
        added = [CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=file) for file in files]
        added.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=text))
        address = api.create_repo(repository, private=not public, exist_ok=True)
        api.create_commit(repository, added, commit_message="Upload a memory of recollect")
    return str(address)


def pull(repository: str, path: str | Path, *, overwrite: bool = False) -> None:
    """Download the memory of a repository "owner/name" to a folder, after its files have been checked."""
    api = _api()
    with TemporaryDirectory() as folder:
        with _explained(repository):
            api.snapshot_download(repository, local_dir=folder, allow_patterns=FILES)
        write_bundle(Path(path), read_bundle(Path(folder)), overwrite=overwrite)


def _api() -> HfApi:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise UserError('memories are shared with huggingface_hub; pip install "recollect[hub]"') from error
    return HfApi()


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Raise UserError for what the Hub refuses, or if it cannot be reached."""
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except (HFValidationError, OSError) as error:  # what the Hub answers with is an OSError
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{repository}: the Hub cannot serve this ({reason}); see its name and `hf auth login`"
        ) from error
