"""A checkpoint folder of unknown origin: its files are read when a rule asks for them, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from training.rules.packaging.bounded_json import WrongFile, read_bytes, read_object
from training.rules.weight_files import Tensor, WrongWeights, tensors_of

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer.json"
TOKENIZER_CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_SMALL = 4_000_000


class CheckpointFolder:
    """The files of a checkpoint. Properties raise WrongFile where a file is missing or not what its name says."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return config.json."""
        return read_object(self.path / CONFIG, _SMALL)

    @cached_property
    def generation(self) -> dict[str, Any]:
        """Return generation_config.json."""
        return read_object(self.path / GENERATION, _SMALL)

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """Return tokenizer.json."""
        return read_object(self.path / TOKENIZER)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        """Return tokenizer_config.json."""
        return read_object(self.path / TOKENIZER_CONFIG, _SMALL)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Return where every tensor is; raises WrongWeights."""
        try:
            return tensors_of(self.path)
        except OSError as error:
            raise WrongWeights(f"the weights cannot be read: {error}") from error

    @cached_property
    def template(self) -> str:
        """Return the chat template: from its file or from tokenizer_config.json; empty without one."""
        try:
            return read_bytes(self.path / TEMPLATE, _SMALL).decode("utf-8")
        except UnicodeDecodeError as error:
            raise WrongFile(TEMPLATE, "is not UTF-8 text") from error
        except WrongFile as error:
            if not error.missing:
                raise
        chat_template = self.tokenizer_config.get("chat_template", "")
        if not isinstance(chat_template, str | list):
            raise WrongFile(TOKENIZER_CONFIG, "has a chat_template that is not text")
        return chat_template if isinstance(chat_template, str) else json.dumps(chat_template)

    @cached_property
    def token_ids(self) -> dict[str, int]:
        """Return every token of tokenizer.json with its id, added ones included."""
        try:
            model: Any = self.tokenizer["model"]["vocab"]
            if isinstance(model, dict):
                counts = {str(token): _natural(id) for token, id in model.items()}
            else:
                counts = {str(pair[0]): place for place, pair in enumerate(model)}
            return counts | {
                str(added_token["content"]): _natural(added_token["id"])
                for added_token in self.tokenizer["added_tokens"]
            }
        except (KeyError, TypeError, ValueError, LookupError) as error:
            raise WrongFile(TOKENIZER, "has no vocabulary that can be read") from error

    def named_token(self, role: str) -> str | None:
        """Return the token that tokenizer_config.json gives a role, such as ``eos_token``; None without."""
        arguments = self.tokenizer_config.get(role)
        content = arguments.get("content") if isinstance(arguments, dict) else arguments
        return content if isinstance(content, str) else None

    @property
    def opening_tokens(self) -> list[str]:
        """Return the special tokens that the tokenizer puts before every text; raises WrongFile."""
        adds = self.tokenizer_config.get("add_bos_token")
        if isinstance(adds, bool):
            token = self.named_token("bos_token")
            return [token] if adds and token else []
        return _opening_tokens(self.tokenizer.get("post_processor"))

    @property
    def is_adapter(self) -> bool:
        """Return whether the only weights here are those of an adapter."""
        names = [path.name for path in self.path.glob("*.safetensors")]
        return bool(names) and all(name.startswith("adapter_") for name in names)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.path / name).is_file()


def ends_of(described: dict[str, Any]) -> set[int]:
    """Return the end tokens that a configuration names; a value that is not an id is left out."""
    eos_token_id = described.get("eos_token_id")
    every = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]
    return {value for value in every if isinstance(value, int) and not isinstance(value, bool)}


def readable(read: Callable[[], Any]) -> bool:
    """Return whether a property can be read."""
    try:
        read()
    except (WrongFile, WrongWeights):
        return False
    return True


def _is_special(part: Any) -> bool:
    token = part.get("SpecialToken") if isinstance(part, dict) else None
    return isinstance(token, dict) and isinstance(token.get("id"), str)


def _opening_tokens(processor: Any) -> list[str]:
    """Return the tokens that a post-processor of tokenizer.json puts before every text."""
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        parts = processor.get("processors")
        return next(filter(None, map(_opening_tokens, parts)), []) if isinstance(parts, list) else []
    single, begin = processor.get("single"), processor.get("cls")
    if isinstance(single, list):
        pieces: list[Any] = single
        return [part["SpecialToken"]["id"] for part in takewhile(_is_special, pieces)]
    return [begin[0]] if isinstance(begin, list) and begin and isinstance(begin[0], str) else []


def _natural(arguments: Any) -> int:
    if isinstance(arguments, bool) or not isinstance(arguments, int) or not 0 <= arguments < 2**31:
        raise ValueError("no id")
    return arguments
