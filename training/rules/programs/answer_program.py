"""The program in an answer: in a code block, or what continues the beginning that was given."""

from __future__ import annotations

import re

from specs.stages.base.sampling import Form

REQUEST = "Complete this Python function. Answer with the whole function in one code block.\n\n{prompt}"
_BLOCK = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def question(prompt: str, form: Form) -> str:
    """Return what a model is asked: a request in a chat, the beginning alone where it continues text."""
    return REQUEST.format(prompt=prompt) if form == "chat" else prompt


def program_in(output: str, prompt: str, form: Form, entry_point: str) -> str:
    """Return the program of an answer.

    In a chat it is the first code block, or the whole answer without one; what lacks the function continues the
    beginning. Continued text ends before the first line that belongs to no function.
    """
    if form == "completion":
        return prompt + _take_indented_lines(output)
    block = _BLOCK.search(output)
    text = block[1] if block else output
    if re.search(rf"^(async )?def {re.escape(entry_point)}\b", text, re.MULTILINE):
        # Imports and helpers that the beginning holds may be missing in the answer.
        before = re.split(rf"^def {re.escape(entry_point)}\b", prompt, maxsplit=1, flags=re.MULTILINE)[0]
        return f"{before}\n{text}"
    return prompt + text


def _take_indented_lines(output: str) -> str:
    first, *lines = output.split("\n")
    texts = [first]
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        texts.append(line)
    return "\n".join(texts) + "\n"
