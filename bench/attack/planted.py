"""Secrets to plant: each form as someone would paste it, made anew for every seed, none of them in use anywhere."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from dataclasses import dataclass
from urllib.parse import quote

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]|\\\\u(?:00ad|200[b-f]|2060|feff)", re.IGNORECASE)
_ESCAPES = re.compile(r"(?:\x1b|\\u001b|\\x1b)\[[0-9;]*m")
_GAPS = re.compile(r"(?:\\r|\\n|\s)+")


@dataclass(frozen=True)
class PlantedSecret:
    """One secret: the text it is planted with, and what of that must appear nowhere afterwards."""

    name: str
    text: str
    hidden: tuple[str, ...]

    def is_in(self, text: str, squeezed: str) -> bool:
        """Return whether the secret is in a text, which is also given by :func:`squeezed`."""
        parts = [part for text in self.hidden for part in _parts(text)]
        return any(part in text or _GAPS.sub("", part) in squeezed for part in parts)


def _parts(hidden: str) -> tuple[str, ...]:
    """Return a secret and, of a long one, its halves: half of a key is as good as most of it."""
    half = len(hidden) // 2
    return (hidden, hidden[:half], hidden[half:]) if half >= 14 else (hidden,)


def squeeze_text(text: str) -> str:
    """Return a text without what a secret may be split by: invisible characters, blanks and line ends."""
    return _GAPS.sub("", _INVISIBLE.sub("", _ESCAPES.sub("", text)))


class Plants:
    """All forms of one seed, and the environment in which some of them are known values."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.environ = {
            "SERVICE_API_KEY": self._make_plant(32, string.ascii_letters + string.digits),
            "PEERGATE_REVIEWER_KEY": self._make_plant(40, string.ascii_letters + string.digits + "_"),
            "QUOTED_SECRET": f'{self._make_plant(10)}"/{self._make_plant(8)}\\+{self._make_plant(6)}',
            "ANALYTICS_DATABASE_URL": f"postgresql://trainer:{self._make_plant(14)}%21@db.invalid:5432/runs",
        }
        self.bearer = self._make_plant(43)
        """What a token file holds: known because it was read, not because of its name or form."""
        self.all = tuple(self._all())

    def _make_plant(self, count: int, letters: str = string.ascii_letters + string.digits) -> str:
        # With a digit, a small and a capital letter, as nearly every key has them.
        return "".join(self._random.choices(letters, k=count - 3)) + "a7K"

    def _hex(self, count: int) -> str:
        return "".join(self._random.choices("0123456789abcdef", k=count))

    def _block(self, kind: str, begin: str = "") -> tuple[str, str, str]:
        body = begin + self._make_plant(190)
        lines = [body[at : at + 64] for at in range(0, len(body), 64)]
        return f"-----BEGIN {kind}-----", "\n".join(lines), f"-----END {kind}-----"

    def _all(self) -> list[PlantedSecret]:
        whole: dict[str, str] = {
            "AWS key id": "AKIA" + "".join(self._random.choices(string.ascii_uppercase + string.digits, k=16)),
            "Azure client secret": f"{self._make_plant(3)}8Q~{self._make_plant(34)}",
            "GitHub classic": f"ghp_{self._make_plant(36)}",
            "GitHub fine-grained": f"github_pat_{self._make_plant(22)}_{self._make_plant(59)}",
            "GitHub server": f"ghs_{self._make_plant(36)}",
            "GitLab": f"glpat-{self._make_plant(20)}",
            "Slack bot": f"xoxb-{self._random.randrange(10**11, 10**12)}-{self._make_plant(24)}",
            "Stripe": f"sk_live_{self._make_plant(24)}",
            "OpenAI project": f"sk-proj-{self._make_plant(60)}",
            "OpenAI older": f"sk-{self._make_plant(48)}",
            "Anthropic": f"sk-ant-api03-{self._make_plant(80)}-{self._make_plant(6)}AA",
            "Hugging Face": f"hf_{self._make_plant(34)}",
            "npm": f"npm_{self._make_plant(36)}",
            "PyPI": f"pypi-AgEIcHlwaS5vcmc{self._make_plant(80)}",
            "Google API": f"AIza{self._make_plant(35)}",
            "Telegram bot": f"{self._random.randrange(10**8, 10**9)}:AA{self._make_plant(33)}",
            "Discord bot": f"MT{self._make_plant(22)}.G{self._make_plant(5)}.{self._make_plant(38)}",
            "SendGrid": f"SG.{self._make_plant(22)}.{self._make_plant(43)}",
            "Twilio": f"SK{self._hex(32)}",
            "age": "AGE-SECRET-KEY-1" + "".join(self._random.choices("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", k=58)),
            "JWT": ".".join(
                base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
                for text in ('{"alg":"HS256","typ":"JWT"}', f'{{"sub":"{self._make_plant(12)}"}}', self._make_plant(32))
            ),
        }
        results = [PlantedSecret(name, f"it says {text} there", (text,)) for name, text in whole.items()]
        in_place = {
            "AWS secret": (self._make_plant(40), "aws_secret_access_key = {}"),
            "Azure account key": (
                self._make_plant(86),
                "AccountName=runs;AccountKey={}==;EndpointSuffix=core.windows.net",
            ),
            "Azure SAS": (self._make_plant(43), "https://runs.blob.core.windows.net/w?sv=2024-11-04&sp=rl&sig={}%3D"),
            "Slack webhook": (self._make_plant(24), "https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/{}"),
            "Discord webhook": (self._make_plant(60), "https://discord.com/api/webhooks/123456789012345678/{}"),
            "W&B": (self._hex(40), "wandb login --relogin {}"),
            "URL password": (self._make_plant(16), "fetched from https://reader:{}@data.invalid/rows.jsonl"),
            "Bearer header": (self._make_plant(36), "Authorization: Bearer {}"),
            "Basic header": (
                base64.b64encode(f"me:{self._make_plant(12)}".encode()).decode(),
                "Authorization: Basic {}",
            ),
            "netrc": (self._make_plant(14), "machine data.invalid login me password {}"),
            "pgpass": (self._make_plant(14), "db.invalid:5432:runs:trainer:{}"),
            "kubeconfig token": (self._make_plant(40), "users:\n- name: admin\n  user:\n    token: {}"),
            "kubeconfig key": (
                base64.b64encode(f"-----BEGIN RSA PRIVATE KEY-----\n{self._make_plant(120)}".encode()).decode(),
                "client-key-data: {}",
            ),
            "connection string": (self._make_plant(14), "Server=db.invalid;User Id=sa;Password={};Encrypt=true"),
            "password in JSON": (f"{self._make_plant(7)}!x", '{{"user": "me", "password": "{}"}}'),
            "environment line": (self._make_plant(30), "export INTERNAL_SERVICE_TOKEN={}"),
        }
        results += [PlantedSecret(name, text.format(value), (value,)) for name, (value, text) in in_place.items()]
        for kind in ("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK", "OPENSSH PRIVATE KEY"):
            begin, body, end = self._block(kind, "b3BlbnNzaC1rZXktdjEA" if "SSH" in kind else "")
            results.append(PlantedSecret(kind, f"{begin}\n{body}\n{end}", tuple(body.splitlines()[:2])))
        begin, body, end = self._block("PRIVATE KEY")
        account = {"type": "service_account", "private_key": f"{begin}\n{body}\n{end}\n"}
        results.append(PlantedSecret("GCP service account", json.dumps(account), tuple(body.splitlines()[:2])))
        return [*results, *self._known_secrets(), *self._disguise_text(whole)]

    def _known_secrets(self) -> list[PlantedSecret]:
        key, reviewer, quoted, database = self.environ.values()
        password = database.split(":")[2].split("@")[0]
        coded = base64.b64encode(f"key={key}".encode()).decode()
        return [
            PlantedSecret("value of a variable", f"used {key} for it", (key,)),
            PlantedSecret("reviewer's key", f"x-api-key {reviewer}", (reviewer,)),
            PlantedSecret("database URL", f"cannot reach {database}", (password,)),
            PlantedSecret("database password", f"refused {password.replace('%21', '!')} for trainer", (password[:-3],)),
            PlantedSecret("bearer token", f"the token file says {self.bearer} today", (self.bearer,)),
            PlantedSecret("value in base64", f"sent {coded} along", (coded[8:-8],)),
            PlantedSecret("value in hex", f"bytes {key.encode().hex().upper()} read", (key.encode().hex().upper(),)),
            PlantedSecret("value in a URL", f"?q={quote(quoted, safe='')}&n=1", (quote(quoted, safe=""), quoted[:10])),
            PlantedSecret("value in JSON", json.dumps({"v": quoted}), (json.dumps(quoted)[1:-1], quoted[:10])),
            PlantedSecret("value over two lines", f"used {key[:15]}\n    {key[15:]} for it", (key,)),
            PlantedSecret("value with soft hyphens", "\u00ad".join(re.findall("....", key)), (key,)),
        ]

    def _disguise_text(self, whole: dict[str, str]) -> list[PlantedSecret]:
        hub, code, claude = whole["Hugging Face"], whole["GitHub classic"], whole["Anthropic"]
        return [
            PlantedSecret("form with zero-width spaces", "a " + "\u200b".join(code) + " b", (code,)),
            PlantedSecret("form over two lines", f"a {claude[:30]}\n{claude[30:]}\nb", (claude,)),
            PlantedSecret("form with an escape sequence", f"{hub[:9]}\x1b[31m{hub[9:]}\x1b[0m", (hub,)),
            PlantedSecret("form in hex escapes", "".join(f"\\x{ord(text):02x}" for text in hub), ("\\x68\\x66\\x5f",)),
            PlantedSecret("form in a URL", quote(hub).replace("hf_", "%68%66%5F"), (hub[3:],)),
        ]
