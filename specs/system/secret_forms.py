"""The forms in which secrets are written: keys as services issue them, private keys, passwords in their places.

A form is looked for only where one of its hints occurs. Digests and key ids have the form of no secret unless a word
such as ``wandb`` precedes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial


@dataclass(frozen=True)
class SecretForm:
    """One form of a secret."""

    mark: str
    """What is written in its place."""
    hints: str
    """What it begins with, in lower case and separated by commas."""
    pattern: str
    """Matches from a hint on; its last named group is the secret, all of it where it has none."""
    before: str = ""
    """Matches what precedes the hint; a named group in it belongs to the secret."""
    may_be_split: bool = True
    """Whether it is clear enough to be looked for in a text without line ends."""

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Compiled when a hint is found first: most never are."""
        return re.compile(self.pattern, re.S), re.compile(f"(?:{self.before})\\Z")

    def spans(self, text: str, lower: str, hint: str) -> Iterator[tuple[int, int]]:
        """Yield where it occurs from one of its hints on in a text, which is also given in lower case."""
        at = lower.find(hint)
        while at >= 0:
            end = at + 1
            if (pair := self._at(text, at)) is not None:
                yield pair
                end = max(end, pair[1])
            at = lower.find(hint, end)

    def _at(self, text: str, at: int) -> tuple[int, int] | None:
        pattern, before = self._patterns
        match = pattern.match(text, at)
        if match is None:
            return None
        start, end = match.span(match.lastgroup or 0)
        # At most what a name before a value can have.
        ahead = before.search(text, max(0, at - 80), at) if self.before else match
        if ahead is None or text.startswith("[masked: ", start):
            return None
        if ahead is not match and ahead.lastgroup:
            start = ahead.start(ahead.lastgroup)
        return start, end


_APART, _AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9])"


def _key(hints: str, pattern: str, before: str = "") -> SecretForm:
    return SecretForm("a key", hints, f"{'' if before else _APART}(?:{pattern}){_AFTER}", before)


_KEYS = {
    "sk-": r"sk-(?:ant-[A-Za-z0-9_-]{16,}|(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})",
    "sk_live_,sk_test_,rk_live_,rk_test_": r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    "whsec_": r"whsec_[A-Za-z0-9+/=]{24,}",
    "akia,asia,abia,acca": r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}",  # AWS
    "ghp_,gho_,ghu_,ghs_,ghr_": r"gh[pousr]_[A-Za-z0-9]{30,}",
    "github_pat_": r"github_pat_[A-Za-z0-9_]{30,}",
    "glpat-,gldt-,glrt-,glptt-,glcbt-,glsoat-,glimt-,glft-,glagent-": r"gl[a-z]{2,5}-[A-Za-z0-9_.-]{20,}",  # GitLab
    "hf_": r"hf_[A-Za-z0-9]{30,}",
    "npm_": r"npm_[A-Za-z0-9]{30,}",
    "pypi-": r"pypi-[A-Za-z0-9_-]{40,}",
    "r8_": r"r8_[A-Za-z0-9]{30,}",  # Replicate
    "gsk_,xai-,pplx-": r"(?:gsk_|xai-|pplx-)[A-Za-z0-9]{40,}",  # Groq, xAI, Perplexity
    "lsv2_": r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{30,}",  # LangSmith
    "rpa_": r"rpa_[A-Z0-9]{30,}",  # RunPod
    "nvapi-": r"nvapi-[A-Za-z0-9_-]{40,}",
    "wandb_v1_": r"wandb_v1_[A-Za-z0-9_]{30,}",
    "aiza": r"AIza[0-9A-Za-z_-]{35}",
    "ya29.": r"ya29\.[0-9A-Za-z_-]{20,}",
    "gocspx-": r"GOCSPX-[0-9A-Za-z_-]{20,}",
    "xox": r"xox[a-z]-[A-Za-z0-9-]{10,}",  # Slack
    "xapp-": r"xapp-\d-[A-Za-z0-9-]{20,}",
    "hooks.slack.com/": r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_+-]{20,})",
    "api/webhooks/": r"api/webhooks/\d+/(?P<secret>[\w-]{20,})",  # Discord
    "sg.": r"SG\.[\w-]{16,32}\.[\w-]{16,64}",  # SendGrid
    "sk": r"SK[0-9a-f]{32}",  # Twilio
    "key-": r"key-[0-9a-f]{32}",  # Mailgun
    "dapi": r"dapi[0-9a-f]{32}(?:-\d)?",  # Databricks
    "hvs.,hvb.": r"hv[sb]\.[A-Za-z0-9_-]{20,}",  # Vault
    "dop_v1_,doo_v1_,dor_v1_": r"do[opr]_v1_[0-9a-f]{64}",
    "dckr_pat_": r"dckr_pat_[A-Za-z0-9_-]{20,}",
    "shpat_,shpca_,shppa_,shpss_": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "lin_api_,ntn_": r"(?:lin_api|ntn)_[A-Za-z0-9]{30,}",
    "figd_,sbp_": r"figd_[A-Za-z0-9_-]{30,}|sbp_[0-9a-f]{40}",
    "glc_,glsa_": r"gl(?:c|sa)_[A-Za-z0-9+/=_]{30,}",  # Grafana
}
"""Keys by the texts that every one of them holds."""
_ISSUED = (
    *(_key(hints, pattern) for hints, pattern in _KEYS.items()),
    _key(".", r"\.[\w-]{6}\.[\w-]{27,40}", r"(?<![\w.-])(?P<secret>[MNO][A-Za-z\d_-]{22,28})"),  # Discord bots
    _key(":aa", r":AA[A-Za-z0-9_-]{32,34}(?![\w-])", r"(?<![A-Za-z0-9_])(?P<secret>\d{8,10})"),  # Telegram bots
    _key("-us", r"-us\d{1,2}", r"(?<![A-Za-z0-9_])(?P<secret>[0-9a-f]{32})"),  # Mailchimp
    _key(".atlasv1.", r"\.atlasv1\.[A-Za-z0-9_-]{50,}", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{14})"),
    _key("q~", r"Q~[A-Za-z0-9_~.-]{31,34}", r"(?<![A-Za-z0-9_~.-])(?P<secret>[A-Za-z0-9_~.-]{3}\d)"),  # Entra
    SecretForm("a private key", "age-secret-key-1", _APART + r"(?i:AGE-SECRET-KEY-1[0-9A-Z]{30,})"),
    SecretForm("a token", "eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{6,}(?:\.[\w-]*){1,3}"),  # JWT, JWE
)

_PRIVATE_KEYS = (
    # One without an end reaches to the end of the text.
    SecretForm(
        "a private key",
        "-----begin ,---- begin ",
        r"-{4,5} ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
        r".*?(?:-{4,5} ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}|\Z)",
    ),
    SecretForm("a private key", "private-lines:", r"(?i:Private-Lines: ?\d.*?)(?=Private-MAC|\Z)"),  # PuTTY
    # Without the lines around it: Ed25519 in PKCS #8, OpenSSH's own form, and a PEM once more in base64.
    SecretForm("a private key", "mc4caqawbqydk2vwbcie", r"MC4CAQAwBQYDK2VwBCIE[A-Za-z0-9+/]{20,}={0,2}"),
    SecretForm("a private key", "b3blbnnzac1rzxktdje", r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/]{20,}={0,2}"),
    SecretForm("a private key", "ls0tls1crudjti", r"LS0tLS1CRUdJTi(?!BDRVJU|BQVUJM)[A-Za-z0-9+/]{30,}={0,2}"),
)

_IS = r"\\{0,3}[\"'`]?[ \t]{0,3}(?:=>|:=|=|:)[ \t]{0,3}"
_NO_VALUE = r"(?!\[masked: |\{|\$|<|%\(|None\b|null\b|true\b|false\b|str\b|bool\b)"
# Long, of letters and digits: the `token` of a model's configuration is no such thing.
_PASSWORD = r"(?i:password|passwd|passphrase|passwort|pwd)s?"
_PASSWORD_HINTS = "password,passwd,passphrase,passwort,pwd"
_NEAR = r"[^\n]{0,80}?(?<![0-9a-f:])"
_LETTERS = r"[\w+/=.%~:!@#$^&*-]"
_VALUE = (
    rf"(?P<secret>(?!\[masked: |sha256:|https?://)(?={_LETTERS}{{0,200}}?\d)(?={_LETTERS}{{0,200}}?[A-Za-z])"
    rf"{_LETTERS}{{16,2000}}+)(?![(\[])"
)


_in_place = partial(SecretForm, may_be_split=False)
_UNMASKED = r"(?!\[masked: )"
_NAMED = r"api|access|account|secret|auth|shared|client|encryption|signing|service|subscription|app|private|refresh|id"
_IN_PLACE = (
    # With a digit in it: "Bearer authentication" is prose.
    _in_place(
        "a token",
        "bearer,basic",
        r"(?<![A-Za-z])(?i:bearer|basic)[ \t:]{1,8}"
        r"(?P<secret>(?=[A-Za-z._~+/-]{0,200}\d)[A-Za-z0-9._~+/-]{12,}={0,2})",
    ),
    _in_place(
        "a password",
        "basic",
        r"(?i:basic)[ \t]+(?P<secret>[A-Za-z0-9+/_-]{6,}={0,2})",
        r"(?i:authorization)[\"' \t:=\\]{1,8}",
    ),
    # `USER:PASSWORD@HOST` describes an address and is not a secret.
    _in_place(
        "a password",
        "://",
        r"://[^\s/:@?#\"'<>\[\]]{0,200}:(?!\d{1,5}/)"
        r"(?P<secret>(?!\[masked|PASSWORD@|\*+@)[^\s\"'<>@]{1,200}(?:@[^\s\"'<>@/]{1,200})?)@[\w\[]",
        may_be_split=True,
    ),
    _in_place("a token", "://", r"://(?P<secret>(?=[^\s@/]*\d)[A-Za-z0-9_-]{20,200})@[\w\[]", may_be_split=True),
    # In quotes anything; without them no code (`password=getpass(`), and no word of a sentence.
    _in_place(
        "a password",
        _PASSWORD_HINTS,
        rf"{_PASSWORD}{_IS}(?P<quote>\\{{0,3}}[\"']){_NO_VALUE}(?P<secret>(?:(?!(?P=quote)|\n).){{6,200}})(?P=quote)",
    ),
    _in_place(
        "a password",
        _PASSWORD_HINTS,
        rf"{_PASSWORD}(?:{_IS}|[ \t]is[ \t]){_NO_VALUE}"
        r"(?P<secret>(?=[^\s;,]*[\d!@#$%^&*+])[^\s\"'`,;()\[\]{}<>]{6,200}+)(?![\[(])",
    ),
    _in_place(
        "a key",
        "key,secret,token,credential",
        rf"(?i:key|secret|token|credential)s?(?:[_ ]?value)?{_IS}[\"'`\\]{{0,3}}{_VALUE}",
        rf"(?i:(?:{_NAMED})[_ .-]{{0,2}}(?:access[_ .-]?)?)",
    ),
    # The key of a trail's entry and of a job is called `key` alone.
    _in_place(
        "a key",
        "secret,token,credential",
        rf"(?<![A-Za-z_])(?i:secret|token|credential)s?{_IS}[\"'`\\]{{0,3}}{_VALUE}",
    ),
    _in_place(
        "a signature",
        "sig=,signature=,security-token=",
        rf"(?i:sig|signature|security-token)={_VALUE}",
        r"[?&;]|X-Amz-|X-Goog-|SharedAccess",
    ),
    _in_place(
        "a key",
        "aws,akia,asia",
        r"(?:(?i:aws)|AKIA|ASIA).{0,80}?(?<![A-Za-z0-9+/=])(?P<secret>(?=[a-z0-9+/]{0,40}[A-Z])(?=[A-Z0-9+/]{0,40}[a-z])"
        r"(?=[A-Za-z+/]{0,40}\d)[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])",
    ),
    _in_place("a key", "wandb", rf"(?i:wandb){_NEAR}(?P<secret>[0-9a-f]{{40}})(?![0-9a-f])"),
    _in_place("a key", "twilio", rf"(?i:twilio){_NEAR}(?P<secret>(?:SK)?[0-9a-f]{{32}})(?![0-9a-f])"),
    _in_place(
        "a password",
        "machine ,default",
        rf"(?:machine\s+\S+|default)\s+login\s+\S+\s+password\s+(?P<secret>{_UNMASKED}[^\s\"'\\]+)",
    ),
    _in_place(
        "a password",
        "curl ",
        rf"curl\b[^\n]{{0,200}}?\s(?:-u|--user)[ =]\s*[\"']?[^\s:\"']+:(?P<secret>{_UNMASKED}[^\s\"']{{4,}})",
    ),
    # A line of ~/.pgpass: host:port:database:user:password. The hint is the port.
    _in_place(
        "a password",
        ":5,:6,:*:",
        rf":(?:\d{{4,5}}|\*):[^:\s]+:[^:\s]+:(?P<secret>{_UNMASKED}[^\s:\"'\\()]{{4,}})(?=[\s\"'\\)]|\Z)",
        r"(?:\A|[\s\"'(\\])[\w.*-]+",
    ),
)

FORMS = (*_ISSUED, *_PRIVATE_KEYS, *_IN_PLACE)
HINTED = tuple((hint, form) for form in FORMS for hint in form.hints.split(","))
"""The hints of all forms. Most texts hold none: looking for each of them is all that such a text costs."""
