"""Models on the hubs of Hugging Face and Kaggle: their files come into a local folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from keras_attention.utils.lazily import needed

SCHEMES = ("hf", "kaggle")
# Only what a model is read from: a repository also has files for other programs, and several times the
# same weights.
PATTERNS = (
    *("*.json", "*.spm", "*.txt", "*.model", "*.npz", "*.yml", "README.md"),
    *("*.safetensors", "model.bin", "model.*.bin", "vocab.*", "*/model.bin", "*/*.json"),
    *("*.weights.h5", "*.keras", "assets/*"),
    *("encoder_model.onnx*", "decoder_model_merged.onnx*", "tokenizer/*"),
)
OLD_WEIGHTS = "pytorch_model*.bin"
KAGGLE_PARTS = "owner/model/framework/variation"


def is_handle(handle: Any) -> bool:
    """Whether a string names a model on a hub, as `hf://owner/name` does."""
    return isinstance(handle, str) and handle.partition("://")[0] in SCHEMES and "://" in handle


def download(handle: str) -> Path:
    """Return a folder with the files of a model on a hub; files in the hub's cache are used again.

    Args:
        handle: `"hf://owner/name"`, with `"@revision"` for another version than the newest, or
            `"kaggle://owner/model/framework/variation"`.
    """
    scheme, _, name = handle.partition("://")
    return (_from_hugging_face if scheme == "hf" else _from_kaggle)(handle, name)


def _from_hugging_face(handle: str, name: str) -> Path:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", name):
        raise ValueError(
            f"{handle!r} must have the form hf://owner/name, or hf://owner/name@revision."
        )
    hub = needed(
        "huggingface_hub",
        f"{handle!r} is downloaded by huggingface_hub, which is not installed: pip install huggingface_hub",
    )
    repository, _, revision = name.partition("@")

    def snapshot(patterns: list[str], offline: bool = False) -> Path:
        return Path(
            hub.snapshot_download(
                repository,
                revision=revision or None,
                allow_patterns=patterns,
                local_files_only=offline,
            )
        )

    try:
        folder = snapshot([*PATTERNS])
        has_new = any(folder.glob("*.safetensors")) or any(folder.glob("**/model*.bin"))
        if has_new or any(folder.glob("*.h5")):
            return folder
        return snapshot([*PATTERNS, OLD_WEIGHTS])
    except Exception as error:  # of the network, in many types of several libraries
        try:
            return snapshot([*PATTERNS, OLD_WEIGHTS], offline=True)
        except Exception:  # It is not in the cache, either.
            pass
        site = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        address = f"{site}/{repository}/tree/{revision or 'main'}"
        raise ConnectionError(_by_hand(handle, address, error)) from error


def _from_kaggle(handle: str, name: str) -> Path:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+/[\w.-]+/[\w.-]+(/\d+)?", name):
        raise ValueError(
            f"{handle!r} must have the form kaggle://{KAGGLE_PARTS}, with /number for a version."
        )
    message = (
        f"{handle!r} is downloaded by kagglehub, which is not installed: pip install kagglehub"
    )
    hub = needed("kagglehub", message)
    try:
        return Path(hub.model_download(name))
    except Exception as error:  # of the network, in many types of several libraries
        raise ConnectionError(
            _by_hand(handle, f"https://www.kaggle.com/models/{name}", error)
        ) from error


def _by_hand(handle: str, address: str, error: Exception) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return (
        f"{handle!r} is not in the cache and could not be downloaded ({type(error).__name__}: {reason}). "
        f"Download the files of {address} by hand, put them into one folder, and pass the folder's path "
        "in place of the handle."
    )
