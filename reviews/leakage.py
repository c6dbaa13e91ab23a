"""Interim."""
import re, unicodedata
from dataclasses import dataclass
@dataclass(frozen=True)
class Overlap:
    how: str; train: str; heldout: str; train_text: str; heldout_text: str; similarity: float
def norm(t): return " ".join(re.sub(r"[^\w\s]", " ", unicodedata.normalize("NFKC", t).casefold()).split())
def sh(t):
    w = norm(t).split(); return {tuple(w[i:i+3]) for i in range(max(1, len(w)-2))}
def find_overlaps(train, heldout, *, threshold=0.8):
    out = []; held = [(i, t, norm(t), sh(t)) for i, t in heldout]
    for ti, tt in train:
        n, s = norm(tt), sh(tt)
        for hi, ht, hn, hs in held:
            j = len(s & hs) / len(s | hs)
            how = "exact" if tt == ht else "normalised" if n == hn else "near" if j >= threshold else None
            if how: out.append(Overlap(how, ti, hi, tt, ht, j))
    return tuple(out)
