"""Texts on which tokenizers of one vocabulary part."""

from __future__ import annotations

TEXTS = (
    *("7", "42", " 5  7   9    11", "In 2024, 12345 apples cost $1,234.56 (up 7.5%).", "x1y22z333 v2.0.13-rc4 1e-9"),
    *(
        "a\t1\t\t2\n\t 3\r\n 4\r\n\r\n  5",
        "Steps:\n\n1. Wash.\n\n10. Eat.",
        "It's 5 o'clock; we'll've 'd 9's I'm they're",
    ),
    *("½ ¾ x² H₂O ٣٤٥ ६७८", "三十五 2024年11月22日 서울 123", "naïve café Straße Привет שלום مرحبا", "1️⃣ 👍🏽 👨‍👩‍👧"),
    *(
        "    def f(x=10):\n        return x ** 2  # 2nd power\n",
        '{"n": 3, "ids": [10, 200,  3000]}',
        "....!!!???---___ 1___2",
    ),
    *("  leading and trailing  ", "https://example.org:8080/a/1?b=22&c=%20#3", "\u00a01\u20092\u30003\u200b4"),
)
"""Digits, runs of spaces, line ends, contractions, other scripts, code."""
