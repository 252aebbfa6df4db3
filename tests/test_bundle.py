"""`gpudoctor report --bundle`: what is in it, what is not, and that one from anybody opens safely."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from each import each
from stand_in import run
from test_report import REPORT

from gpudoctor.errors import UserError, WorkError
from gpudoctor.files import bundle, opening, snapshot
from gpudoctor.model import Reply
from gpudoctor.report import bundle as packing
from gpudoctor.report import schema

SNAPSHOT = Path(__file__).parent / "machines" / "h200-x2" / "snapshot.json"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("bundle") / "report.tar.gz"
    result = run("report", str(SNAPSHOT), "--bundle", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    return file.read_bytes()


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.mark.slow
def test_every_file_is_in_the_manifest_with_its_sum(data: bytes) -> None:
    found = members(data)
    rows = json.loads(found.pop(f"{bundle.FOLDER}/manifest.json"))["files"]
    sums = {f"{bundle.FOLDER}/{row['file']}": row["sha256"] for row in rows if row["file"]}
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    reports = {f"{bundle.FOLDER}/{name}" for name in ("report.html", "report.md", "report.json", "snapshot.json")}
    assert reports < {*found}


def test_the_manifest_says_what_was_asked(data: bytes) -> None:
    rows = json.loads(members(data)[f"{bundle.FOLDER}/manifest.json"])["files"]
    asked = {row["asked"]: row for row in rows if "asked" in row}
    taken = snapshot.load(str(SNAPSHOT))
    assert asked.keys() == {*taken.replies, *taken.measured}
    smi = asked["command:nvidia-smi -L"]
    assert (smi["status"], smi["exit"]) == ("ok", 0)
    assert members(data)[f"{bundle.FOLDER}/{smi['file']}"].startswith(b"GPU 0: ")


def test_its_headers_tell_nothing_of_who_made_it(data: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {(one.uid, one.gid, one.uname, one.gname, one.mode) for one in archive} == {(0, 0, "", "", 0o644)}
    assert data[3] == 0  # flags of gzip: no file name, no comment
    assert data[4:8] == bytes(4)


def test_it_opens_again(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_bytes(data)
    assert opening.taken_in(str(tmp_path / "b.tar.gz")) == snapshot.load(str(SNAPSHOT))
    assert run("check", "--replay", str(tmp_path / "b.tar.gz")).exit_code == run("check", "--replay", str(SNAPSHOT)).exit_code


def test_what_is_too_large_stays_in_the_snapshot_only(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = snapshot.load(str(SNAPSHOT))
    noise = Reply("ok", os.urandom(60_000).hex())
    with_noise = replace(taken, replies={**taken.replies, "command:noise": noise})
    whole = len(packing.packed(REPORT, with_noise))
    monkeypatch.setattr(packing, "MOST_BYTES", whole - 1)
    rows = json.loads(members(packing.packed(REPORT, with_noise))[f"{bundle.FOLDER}/manifest.json"])["files"]
    left_out = {row["asked"] for row in rows if "left_out" in row}
    assert "command:noise" in left_out
    assert len(left_out) < len(rows)
    monkeypatch.setattr(packing, "MOST_BYTES", 1000)
    with pytest.raises(WorkError, match="larger than"):
        packing.packed(REPORT, with_noise)


def made(*files: tarfile.TarInfo, content: bytes = b"{}") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for file in files:
            file.size = len(content) if file.isreg() else 0
            archive.addfile(file, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


NAME = f"{bundle.FOLDER}/{bundle.SNAPSHOT}"


def sparse(size: int) -> bytes:
    """A few bytes that stand for any number of zeros."""
    header = bytearray(member(NAME, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0" % 0 * 2
    header[482:495] = b"\0%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(1024))


def names_of_names(count: int) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2
    return gzip.compress((header.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * count + bytes(1024))


def with_headers(**headers: str) -> tarfile.TarInfo:
    info = member(NAME)
    info.pax_headers = {name.replace("_", "."): value for name, value in headers.items()}
    return info


def changed() -> bytes:
    """A bundle whose snapshot was edited after the manifest was written."""
    out, taken = io.BytesIO(), SNAPSHOT.read_bytes()
    rows = [{"file": bundle.SNAPSHOT, "sha256": hashlib.sha256(taken).hexdigest()}]
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in ((bundle.MANIFEST, json.dumps({"files": rows}).encode()), (bundle.SNAPSHOT, taken + b" ")):
            info = member(f"{bundle.FOLDER}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (made(member("../../snapshot.json"), member("/etc/snapshot.json")), "holds no"),
        (made(member(NAME, tarfile.SYMTYPE, "/etc/passwd")), "holds no"),
        (made(member(NAME, tarfile.LNKTYPE, "/etc/passwd")), "holds no"),
        (made(member(NAME, tarfile.FIFOTYPE)), "holds no"),
        (made(member(NAME), content=b"[" * 1000), "contains no gpudoctor snapshot"),
        (made(member(NAME), content=b"{}" * 600)[:-30], "cannot be unpacked"),
        (made(member(NAME, tarfile.CHRTYPE)), "holds no"),
        (sparse(1 << 33), "not an archive of plain files"),
        (made(with_headers(GNU_sparse_map="0,0", GNU_sparse_size=str(1 << 40))), "not an archive of plain files"),
        (made(with_headers(size="-512")), "not an archive of plain files"),
        (made(member(NAME + "x" * 1_000_000)), "not an archive of plain files"),
        (names_of_names(5000), "cannot be unpacked"),
        (made(member(NAME), content=b"\xff\xfe"), "contains no gpudoctor snapshot"),
        (made(member(NAME), content=b'{"a":' * 9000), "levels deep"),
        (changed(), "was modified"),
        (gzip.compress(made(member(NAME))), "contains no gpudoctor snapshot"),
    ],
    ids=[
        *("paths", "symbolic link", "hard link", "pipe", "no snapshot", "cut off", "device", "sparse"),
        *("sparse otherwise", "size below zero", "long name", "names of names", "no text", "deep", "changed", "packed twice"),
    ],
)
def test_a_hostile_one_is_refused_in_a_line(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "b.tar.gz").write_bytes(data)
    result = run("report", str(tmp_path / "b.tar.gz"))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.gz"]


def unpacked(data: bytes) -> bytes:
    return bundle.snapshot_in(iter([gzip.decompress(data)]), "b")


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(UserError, match="larger than 1 MiB when unpacked"):
        unpacked(made(member("zeros"), content=bytes(2 << 20)))
    monkeypatch.setattr(bundle, "MOST_SNAPSHOT_BYTES", 100)
    with pytest.raises(UserError, match="of more than 0 MiB"):
        unpacked(made(member(NAME), content=b" " * 101))
    monkeypatch.setattr(bundle, "MOST_MEMBERS", 10)
    with pytest.raises(UserError, match="more than 10 files"):
        unpacked(made(*(member(f"file{number}") for number in range(20))))


def with_size(size: bytes, kind: bytes = b"0") -> bytes:
    """A header alone, of a member whose size is written like that."""
    header = bytearray(member("x").tobuf(tarfile.USTAR_FORMAT))
    header[124:136], header[156:157] = size.ljust(12, b"\0"), kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@each(
    "data",
    [
        with_size(b"\x80" + bytes(2) + b"\x7f" * 9),  # base 256
        with_size(b"\xff" * 12),
        with_size(b"-1"),
        with_size(b"9"),
        with_size(b""),
        *(with_size(b"1000", kind) + b"1" * 512 for kind in (b"x", b"g", b"L", b"K", b"S", b"7", b"V")),
        with_size(b"0").replace(b"x", b"y", 1),  # another checksum
    ],
)
def test_only_plain_files_with_octal_sizes_are_read(data: bytes) -> None:
    with pytest.raises(UserError, match="not an archive of plain files"):
        bundle.snapshot_in(iter([data + bytes(1024)]), "b")


def test_a_size_beyond_the_end_is_a_cut_off_file() -> None:
    with pytest.raises(UserError, match="it is cut off"):
        bundle.snapshot_in(iter([with_size(b"77777777777")]), "b")


def test_pieces_of_any_size_are_read(data: bytes) -> None:
    whole = gzip.decompress(data)
    assert bundle.snapshot_in((whole[at : at + 7] for at in range(0, len(whole), 7)), "b") == unpacked(data)


@pytest.mark.parametrize("taken", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_header_holds_is_packed_all_the_same(taken: str) -> None:
    packed = packing.packed(REPORT, replace(snapshot.load(str(SNAPSHOT)), taken=taken))
    assert unpacked(packed)


def test_a_packed_snapshot_is_no_bundle() -> None:
    assert not bundle.is_bundle(SNAPSHOT.read_bytes())


def test_the_manifest_follows_the_published_schema(data: bytes) -> None:
    plain = json.loads(members(data)[f"{bundle.FOLDER}/{bundle.MANIFEST}"])
    jsonschema.validate(plain, schema.of_manifest(), jsonschema.Draft202012Validator)
    known = schema.of_manifest()["$defs"]["File"]["properties"]
    assert {name for row in plain["files"] for name in row} == {*known} - {"left_out"}
