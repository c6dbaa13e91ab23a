"""What is masked, in every form of the planted set, and what is not: digests, settings and ordinary text."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.attack.planted import Plants, squeeze_text
from specs.system import masking
from specs.system.masking import Masker, forms_only

PLANTS = Plants(3)
HOME = Path(__file__).parents[2]


@pytest.fixture
def masker() -> Masker:
    return Masker(PLANTS.environ, {PLANTS.bearer: "the bearer token"})


@pytest.mark.parametrize("planted", PLANTS.all, ids=lambda item: item.name)
def test_every_planted_form_is_masked(masker: Masker, planted: object) -> None:
    from bench.attack.planted import PlantedSecret

    assert isinstance(planted, PlantedSecret)
    for text in (planted.text, f"a line\n{planted.text}\nanother", f"({planted.text})"):
        assert planted.is_in(text, squeeze_text(text)), "it is not even planted"
        masked = masker.text(text)
        assert not planted.is_in(masked, squeeze_text(masked)), masked
        assert masker.text(masked) == masked
        assert masked.count("\n") == text.count("\n")
    for value in ({"note": planted.text}, [[planted.text]], {planted.text: 1}):
        output = json.dumps(masker.value(value))
        assert not planted.is_in(output, squeeze_text(output)), output
        output = masker.json(json.dumps(value))
        assert not planted.is_in(output, squeeze_text(output)), output
        assert json.loads(output) != value
        output = masker.json(json.dumps({"text": json.dumps(value)}))
        assert not planted.is_in(output, squeeze_text(output)), output
        output = masker.text(f"note: {json.dumps(value)}")
        assert not planted.is_in(output, squeeze_text(output)), output


def test_forms_of_secrets_are_found_without_any_known_value() -> None:
    known = {secret.name for secret in PLANTS.all if forms_only().text(secret.text) == secret.text}
    assert known == {
        "value of a variable", "reviewer's key", "database password", "bearer token", "value in base64", "value in hex",
        "value in a URL", "value in JSON", "value over two lines", "value with soft hyphens",
    }  # fmt: skip


def test_every_seed_is_masked() -> None:
    for seed in range(40):
        plants = Plants(seed)
        masker = Masker(plants.environ, {plants.bearer: "the bearer token"})
        for secret in plants.all:
            masked = masker.text(secret.text)
            assert not secret.is_in(masked, squeeze_text(masked)), (seed, secret.name, secret.text)


def test_nothing_of_what_ships_is_a_secret_and_masking_is_quick() -> None:
    masker = Masker(PLANTS.environ)
    files = [*HOME.glob("*.md"), *HOME.glob("docs/**/*.md"), *HOME.glob("specs/library/*")]
    files += [
        *HOME.glob("agents/**/*.py"),
        *HOME.glob("reviews/**/*"),
        *HOME.glob("specs/**/*.py"),
        *HOME.glob("verify/*"),
    ]
    read = [(file, file.read_text("utf-8")) for file in files if file.is_file() and file.suffix != ".pyc"]
    began = time.process_time()
    alarms = {str(path): [text[at : at + 60] for at, _ in masker.places(text)] for path, text in read}
    spent = time.process_time() - began
    assert {name: alarm for name, alarm in alarms.items() if alarm} == {}
    size = sum(len(text) for _, text in read)
    assert size > 1_000_000 and spent / size * 100_000 < 0.2, f"{spent / size * 1e8:.0f} ms for 100 kB"


@pytest.mark.parametrize(
    "text",
    [
        "sha256:" + "0f" * 32,
        json.dumps({"key": "small-session-12.base.1", "digest": "sha256:" + "ab12" * 16, "keyid": "19562cfe01393b6d"}),
        json.dumps({"keyid": "19562cfe01393b6d" * 4, "public": "ab" * 32, "token_ids": [1], "pad_token": "<|end|>"}),
        "wandb: sha256:" + "a1" * 20,
        "commit 5057adb0c2f14cf2b2c5d1b1d0e9a7c3d8b6f4e2 of the code",
        "— peergate/demo Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=",
        "eos_token='<|im_end|>' max_tokens=2048 token: 151643 secret santa key-value sk-learn hf_hub npm_config",
        "password: see the manual; the passphrase is asked for; token = tokenizer.eos_token",
        "postgresql://USER:PASSWORD@HOST/DB http://127.0.0.1:8000/v1 git@github.com:peergate/demo.git",
        "Bearer authentication, Basic English, 12:34:56, a.py:1234:error:text, data:text/plain;base64,aGVsbG8gd29ybGQ=",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
        "x" * 200_000,
    ],
)
def test_digests_settings_and_prose_stay_as_they_are(text: str) -> None:
    masker = Masker({"TOKENIZERS_PARALLELISM": "disabled", "A_KEY_PATH": "/root/key1", "PEERGATE_CACHE": "/c4che"})
    assert masker.text(text) == text
    assert masker.value({"text": [text]}) == {"text": [text]}


OWN = re.findall(
    r"^\| `(PEERGATE_\w+)`", (HOME / "docs/reference/environment.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("variable", [*OWN, "MY_TOKEN_DIR", "API_KEY_FILE", "AUTH"])
@pytest.mark.parametrize("value", ["my-runs/of-2026-11", "/tmp/not-there-yet/runs7", "/home/ada/Läufe 3/runs"])
def test_folders_of_ones_own_are_never_masked(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if variable.endswith("_KEY") or variable in ("PEERGATE_DATABASE", "PEERGATE_NOTIFY", "PEERGATE_TRACKERS", "AUTH"):
        # Where the name says that it is a secret, only what is there, or could be made there, is a path.
        value = str(tmp_path / "runs-of-mine")
    text = f"session demo in {value}/demo"
    assert Masker({variable: value}).text(text) == text


@pytest.mark.parametrize("value", ["s3cr3t-value-0815", "/kJ8sd9/Fj2kq+Zm4w", "x" * 300 + "/9"])
def test_a_secret_is_no_path(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert value not in Masker({"A_TOKEN": value}).text(f"token {value} end")
    address = f"postgresql://ada:{quote(value, safe='')}@host/db"
    assert address not in Masker({"PEERGATE_PLACE": address}).text(address)


def test_values_that_are_words_places_or_settings_are_no_secrets() -> None:
    masker = Masker(
        {
            "A_TOKEN": "verification",
            "B_KEY": "/etc/hostname",
            "C_KEY": "12345678",
            "D_KEY": "no-key",
            "HOME": "/root/x1y2z3",
        }
    )
    text = "verification of /etc/hostname 12345678 no-key /x1y2z3"
    assert masker.text(text) == text


def test_what_a_process_knows_is_masked_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", {})
    text = "the file says vq83jf-02hgla-qowpeu"
    assert masking.current().text(text) == text
    masking.know("the bearer token", "vq83jf-02hgla-qowpeu")
    assert masking.current().text(text) == "the file says [masked: the bearer token]"
    monkeypatch.setenv("SOME_SECRET", "rt71-kkd92-lp0")
    assert masking.current().text("rt71-kkd92-lp0") == "[masked: SOME_SECRET]"


@pytest.mark.parametrize("written", ["{}", "a {} b", "{}\n", 'say "{}"'])
def test_a_known_value_is_masked_in_a_json_value_without_a_form(written: str) -> None:
    masker, password = Masker({}, {"plain horse 7": "a value"}), "plain horse 7"
    for text in (password, password.replace(" ", "%20"), password.replace("horse", "ho\u200brse")):
        value = {"a": [written.format(text), "b"]}
        for _ in "12":
            assert masker.value(value) != value and forms_only().value(value) is value
            assert masker.value({"a": "b"}) == {"a": "b"}


def test_a_known_value_is_found_in_evidence_and_a_form_is_left_there(masker: Masker) -> None:
    key = PLANTS.environ["SERVICE_API_KEY"]
    assert masker.known_in(b'{"output": "' + key.encode() + b'"}') == "SERVICE_API_KEY"
    assert masker.known_in(key.encode().hex().encode()) == "SERVICE_API_KEY"
    assert masker.known_in(b'{"output": "sk-ant-api03-' + b"a1" * 40 + b'"}') is None


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ", "eyJabcdefghi.", "sk-ant-", "aws", "-----BEGIN A ", "-----BEGIN RSA PRIVATE KEY-----", "token=", "://",
        "password: ", "http://a:", "machine ", "curl -u ", "default login a ", ":5432:a:", "%41", "\\n", "\\", "\u00ad",
        "\n ", ".abcdef", "Bearer ", "wandb ", "\x1b]", "&#6", "api_key: 1a", "0123456789abcdef-us",
    ],
)  # fmt: skip
def test_no_text_takes_long(masker: Masker, piece: str) -> None:
    for size in (50_000, 200_000):
        began = time.process_time()
        masker.mask(piece * (size // len(piece)))
        assert time.process_time() - began < size / 100_000 * 2
