"""Sending a trace to a dataset on Hugging Face: private unless it is asked for otherwise."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ..domain.errors import BadUsage, NotSent

DATASET: Final = "hermes-traces"
TOKENS: Final = ("HF_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN")
"""Variables of the environment that may hold the token; the first that does."""


MODULES: Final = ("huggingface_hub",)
"""What the extra `upload` brings."""


class Uploaded(msgspec.Struct, frozen=True):
    """What was sent, and where it is."""

    url: str
    dataset: str
    path: str
    public: bool
    bytes: int
    sha256: str


def token(environment: Mapping[str, str] = os.environ) -> str:
    """The user's token.

    Raises:
        BadUsage: there is none.
    """
    for name in TOKENS:
        if found := environment.get(name, "").strip():
            return found
    raise BadUsage(
        "no Hugging Face token is set, so nothing was sent",
        hint="make one with write access at https://huggingface.co/settings/tokens and set HF_TOKEN",
    )


def upload(trace: Path, name: str, *, public: bool, token: str) -> Uploaded:
    """Send a trace to the user's dataset of traces as `sessions/<name>.jsonl`; it is made if need be.

    Raises:
        NotSent: the hub cannot be reached, or refused; names the step. So where the dataset is public and
            a private one was asked for, or the other way round.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    api = HfApi(token=token, library_name="retold")
    user = _asked("who you are", lambda: api.whoami()).get("name")
    if not user:
        raise NotSent("the hub does not say whose token this is; nothing was sent", hint="try another token")
    dataset = f"{user}/{DATASET}"
    kind: Final = "dataset"
    _asked(
        f"for {dataset}",
        lambda: api.create_repo(dataset, repo_type=kind, private=not public, exist_ok=True),
    )
    found = _asked(f"about {dataset}", lambda: api.repo_info(dataset, repo_type=kind))
    if bool(found.private) is public:
        is_now = "private" if found.private else "public"
        raise NotSent(
            f"{dataset} is {is_now} already; nothing was sent",
            hint="leave --public out" if public else "make it private in its settings, or add --public",
        )
    path = f"sessions/{name}.jsonl"
    _asked(
        f"to take {path}",
        lambda: api.upload_file(
            path_or_fileobj=trace,
            path_in_repo=path,
            repo_id=dataset,
            repo_type=kind,
            commit_message=f"add session trace {name}",
        ),
        after="it may have been sent: look there",
    )
    with trace.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    url = f"{api.endpoint}/datasets/{dataset}/blob/main/{path}"
    return Uploaded(url, dataset, path, public, trace.stat().st_size, digest)


def _asked(what: str, ask: Callable[[], Any], after: str = "nothing was sent") -> Any:
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return ask()
    except HfHubHTTPError as error:
        status = error.response.status_code
        rejected = status in (401, 403)
        raise NotSent(
            f"the hub was asked {what} and refused ({status}); nothing was sent",
            hint="the token needs write access and may have run out" if rejected else "try again later",
        ) from error
    except (HTTPError, OSError, ValueError) as error:
        raise NotSent(
            f"the hub was asked {what} and gave no answer ({type(error).__name__}); {after}",
            hint="try again later; HF_ENDPOINT names another address",
        ) from error
