"""Interim."""
import re, unicodedata
def plain(text: str, limit: int) -> str:
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.", "", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    if len(text) <= limit: return text
    mark = f"... [{len(text)-limit} characters left out]"
    return text[: max(0, limit - len(mark))] + mark if len(mark) < limit else text[:limit]
