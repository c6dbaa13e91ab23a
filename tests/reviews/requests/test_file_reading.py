"""What is read for a requested review, what is left out and why, and that secrets stay where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reviews.requests import file_reading
from reviews.requests.file_reading import ReadingLimits, RequestReader
from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.masking import Masker
from specs.trail.requested_review import RequestReading

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
ISSUED = [
    KEY,
    "sk-proj-abcdefghijklmnopqrstuvwx",
    "sk-" + "a1B2" * 10,
    "hf_" + "aB3" * 12,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "x9" * 18,
    "github_pat_" + "x9" * 18,
    "AIza" + "S" * 35,
    "xoxb-" + "123456789012-" * 2 + "abc",
]
WORDS = [
    "task-proj-alphabet-soup-and-more-words",
    "risk-ant-colony-optimisation-in-python",
    "hf_dataset_name_that_is_long_enough_to_match",
    "AKIA is how such keys begin",
    "sk-learn",
    "disk-usage-of-the-last-thirty-two-days",
    "sha256:782e91ad1ee01ab49282aedd830d664d2bd2d54f9eedb63d09d90aa9c9347c42",
]


def reader(environ: dict[str, str] | None = None, limit: ReadingLimits = file_reading.FOR_MODEL) -> RequestReader:
    return RequestReader(Masker(environ or {}), limits=limit)


def names(reading: RequestReading) -> list[str]:
    return [file.name for file in reading.files]


def why(reading: RequestReading) -> dict[str, str]:
    return {file.name: file.why for file in reading.left_out}


def write(folder: Path, **files: str | bytes) -> None:
    for name, data in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_read_in_order_under_relative_names(here: Path) -> None:
    write(here, src__b_DOT_py="b = 1\n", src__a_DOT_py="a = 1\r\nb = 2\n", src__sub__c_DOT_md="c\n")
    reading = read(here, "src")
    assert names(reading) == ["src/a.py", "src/b.py", "src/sub/c.md"]
    assert reading.files[0].lines == ["a = 1", "b = 2"]
    assert reading.files[0].digest == digest_bytes(b"a = 1\r\nb = 2\n"), "of the bytes, before anything is changed"
    assert str(here) not in reading.model_dump_json(), "no home folder tells whose work it is"


def read(
    folder: Path, *paths: str, environ: dict[str, str] | None = None, limit: ReadingLimits = file_reading.FOR_MODEL
) -> RequestReading:
    request_reader = reader(environ, limit)
    for path in paths:
        request_reader.add(path, "file")
    return request_reader.reading


def test_what_is_left_out_is_listed_with_the_reason(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    write(outside, secret_DOT_md="not for you")
    write(
        here,
        src__text_DOT_md="fine\n",
        src__blob_DOT_bin=b"\x00\x01",
        src__latin_DOT_txt="caf\xe9".encode("latin-1"),
        src__empty_DOT_txt="\n",
        src__large_DOT_txt="x" * (file_reading.FOR_MODEL.file_bytes + 1),
        src___DOT_env="A=1\n",
        src__id_rsa="key\n",
        src__server_DOT_pem="key\n",
        src__credentials_DOT_json="{}\n",
        src___DOT_hidden__x_DOT_md="hidden\n",
        src__node_modules__x_DOT_js="made\n",
        src__run__trail_DOT_sqlite="trail\n",
    )
    (here / "src" / "in.md").symlink_to(here / "src" / "text.md")
    (here / "src" / "out.md").symlink_to(outside / "secret.md")
    os.mkfifo(here / "src" / "pipe")
    reading = read(here, "src")
    assert names(reading) == ["src/text.md"]
    report = why(reading)
    assert report == {
        "src/blob.bin": "not UTF-8 text",
        "src/latin.txt": "not UTF-8 text",
        "src/empty.txt": "empty",
        "src/large.txt": f"larger than {file_reading.FOR_MODEL.file_bytes} bytes",
        "src/.env": "its name is that of a secret",
        "src/id_rsa": "its name is that of a secret",
        "src/server.pem": "its name is that of a secret",
        "src/credentials.json": "its name is that of a secret",
        "src/.hidden": "hidden",
        "src/node_modules": "a folder that tools make",
        "src/run": "a run folder: it is read where it is named itself",
        "src/in.md": "a symbolic link that leads in the folder",
        "src/out.md": "a symbolic link that leads out of the folder",
        "src/pipe": "neither a file nor a folder",
    }
    by_name = {file.name: file for file in reading.left_out}
    assert by_name["src/large.txt"].digest == digest_bytes(b"x" * (file_reading.FOR_MODEL.file_bytes + 1))
    assert by_name["src/large.txt"].bytes == file_reading.FOR_MODEL.file_bytes + 1
    assert by_name["src/.env"].digest is None, "the digest of a short secret can be guessed"
    assert "not for you" not in reading.model_dump_json()


def test_a_file_of_secrets_is_not_read_even_where_it_is_named(here: Path) -> None:
    write(here, _DOT_env="PASSWORD=hunter2\n")
    reading = read(here, ".env")
    assert reading.files == () and why(reading) == {".env": "its name is that of a secret"}


def test_code_that_is_named_after_secrets_is_code(here: Path) -> None:
    write(here, src__secrets_DOT_py="import os\n", src__token_DOT_md="words\n", src__tokens_DOT_txt="words\n")
    assert names(read(here, "src")) == ["src/secrets.py", "src/token.md", "src/tokens.txt"]


def test_more_than_the_total_is_left_out_and_counted(here: Path) -> None:
    write(here, **{f"src__{number}_DOT_md": "x" * 40 for number in range(5)})
    reading = read(here, "src", limit=ReadingLimits(100, 100, 10))
    assert names(reading) == ["src/0.md", "src/1.md"] and len(reading.left_out) == 3
    assert all("over the limit" in file.why for file in reading.left_out)
    assert names(read(here, "src", limit=ReadingLimits(100, 1000, 3))) == ["src/0.md", "src/1.md", "src/2.md"]


def test_an_index_without_end_is_counted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "MAX_LISTED", 2)
    write(here, **{f"src__{number}_DOT_bin": b"\x00" for number in range(5)})
    reading = read(here, "src")
    assert (len(reading.left_out), reading.more_left_out) == (2, 3)


def test_a_walk_without_end_ends(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "MAX_WALKED", 3)
    write(here, **{f"src__{number}_DOT_md": "x" for number in range(9)})
    reading = read(here, "src")
    assert len(reading.files) == 3 and "neither this nor what follows" in reading.left_out[-1].why


def test_a_file_given_twice_is_read_once_and_equal_names_are_distinguished(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    write(path, a_DOT_md="first")
    write(other, a_DOT_md="second")
    reading = read(here, str(path / "a.md"), str(other / "a.md"), str(path / "a.md"))
    assert names(reading) == ["a.md", "2/a.md"] and [file.text for file in reading.files] == ["first", "second"]


@pytest.mark.parametrize("name", ["nothing.md", "a\x00b", "x" * 5000])
def test_a_path_that_leads_nowhere_is_refused(here: Path, name: str) -> None:
    with pytest.raises(UserError):
        read(here, name)


def test_a_pipe_and_a_loop_of_links_are_refused(here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "loop").symlink_to(here / "loop")
    for name, text in (("pipe", "neither a file nor a folder"), ("loop", "'loop' cannot be read")):
        with pytest.raises(UserError, match=text):
            read(here, name)


def test_a_file_without_permission_is_refused_when_named_and_listed_when_found(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here, src__a_DOT_md="text", src__b_DOT_md="text")

    def refuse(path: Path, limit: int) -> bytes:
        if path.name == "a.md":
            raise PermissionError(13, "Permission denied")
        return path.read_bytes()

    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr(file_reading, "_read", refuse)
    reading = read(here, "src")
    assert names(reading) == ["src/b.md"] and why(reading) == {"src/a.md": "cannot be read: Permission denied"}
    with pytest.raises(UserError, match="Permission denied"):
        read(here, "src/a.md")


def test_what_its_asker_may_not_see_is_not_read(here: Path) -> None:
    write(here, src__heldout_DOT_jsonl="secret row", src__a_DOT_md="text")
    request_reader = RequestReader(Masker({}), lambda path: "heldout" not in path.name)
    request_reader.add("src", "file")
    assert (
        names(request_reader.reading) == ["src/a.md"]
        and why(request_reader.reading)["src/heldout.jsonl"] == "may not be read here"
    )
    assert "heldout" not in "".join(request_reader.sources), "rules see no more than a model would"
    with pytest.raises(UserError, match="may not be read here"):
        request_reader.add("src/heldout.jsonl", "file")


def test_no_line_can_begin_one_that_is_not_numbered(here: Path) -> None:
    write(here, a_DOT_md="one\rtwo\u2028three\x0bfour\x85five\r\nsix\n")
    assert read(here, "a.md").files[0].lines == ["one two three four five", "six"]


def test_the_values_of_secrets_in_the_environment_are_masked(here: Path) -> None:
    environ = {
        "MY_API_KEY": "correct-horse-battery",
        "SSH_KEY_PATH": "/home/me/.ssh/some_key",
        "TOKENIZERS_PARALLELISM": "false",
        "SHORT_TOKEN": "abc",
        "EDITOR": "an-editor-with-a-long-name",
    }
    text = "correct-horse-battery /home/me/.ssh/some_key false abc an-editor-with-a-long-name"
    write(here, a_DOT_md=f"x {text}\ny {text}\n")
    file = read(here, "a.md", environ=environ).files[0]
    assert "correct-horse" not in file.text and file.text.count("[masked: MY_API_KEY]") == 2 and file.masked == 2
    assert file.text.count("/home/me/.ssh/some_key false abc an-editor-with-a-long-name") == 2


@pytest.mark.parametrize("key", ISSUED)
def test_keys_are_known_by_the_form_in_which_they_are_issued(here: Path, key: str) -> None:
    write(here, a_DOT_py=f'client = Client("{key}")\n')
    file = read(here, "a.py").files[0]
    assert key not in file.text and file.text == 'client = Client("[masked: a key]")' and file.masked == 1


@pytest.mark.parametrize("word", WORDS)
def test_words_that_look_a_little_like_keys_stay(here: Path, word: str) -> None:
    write(here, a_DOT_md=f"see {word} for more\n")
    assert read(here, "a.md").files[0].text == f"see {word} for more"


def test_a_private_key_is_masked_and_lines_keep_their_numbers(here: Path) -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----"
    write(here, a_DOT_md=f"one\n{block}\nlast\n")
    lines = read(here, "a.md").files[0].lines
    assert lines == ["one", "[masked: a private key]", "", "", "", "last"]
