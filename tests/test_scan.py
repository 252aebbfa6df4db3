"""The scanner of texts: what it keeps of any text, however large and in whatever pieces, in bounded memory."""

from __future__ import annotations

import gzip
import os
import random
import re
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor import source
from gpudoctor.errors import UserError
from gpudoctor.evidence import lines
from gpudoctor.evidence.excerpt import Excerpt
from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.scan import MOST, WHOLE_BYTES, scan
from gpudoctor.evidence.search import FREQUENT, Search, last
from gpudoctor.explaining import gather

pytestmark = pytest.mark.slow

ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
READER = Reader("report", ("BEGIN report",), re.compile("^BEGIN report"), lambda text: None, re.compile("^END"))
XID = "[{:12.6f}] NVRM: Xid (PCI:0000:3b:00): 31, pid={}, name=python, MMU Fault"


def of(text: str | bytes, size: int = 1 << 20, readers: tuple[Reader, ...] = ()) -> Excerpt:
    data = text.encode() if isinstance(text, str) else text
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return scan(next(pieces, b""), pieces, readers)


def log(count: int) -> list[str]:
    return [f"2026-11-21 10:00:00 INFO step {number} loss 0.{number:06d}" for number in range(1, count + 1)]


def large(*inserted: tuple[int, str], count: int = 200_000) -> str:
    """A log of several chunks, with other lines in the place of some."""
    rows = log(count)
    for number, line in inserted:
        rows[number - 1] = line
    return "".join(f"{row}\n" for row in rows)


def test_small_text_is_kept_whole() -> None:
    text = "".join(f"{row}\n" for row in log(50))
    excerpt = of(text)
    assert len(text) < WHOLE_BYTES
    assert excerpt.lines == dict(enumerate(log(50), 1))
    assert (excerpt.total_lines, excerpt.bytes, excerpt.left_out) == (50, len(text), 0)


def test_lines_around_a_message_are_kept_of_a_large_text() -> None:
    excerpt = of(large((100_000, ERROR)))
    assert sorted(excerpt.lines) == list(range(99_998, 100_009))
    assert excerpt.lines[100_000] == ERROR
    assert (excerpt.total_lines, excerpt.left_out) == (200_000, 0)


@pytest.mark.slow
def test_line_and_its_surroundings_at_every_place_around_the_border_of_chunks() -> None:
    rows = log(120_000)
    text = "".join(f"{row}\n" for row in rows)
    border = text[: lines.CHUNK_BYTES].count("\n")
    for number in range(border - 10, border + 6):
        excerpt = of(large((number, ERROR), count=120_000))
        assert sorted(excerpt.lines) == list(range(number - 2, number + 9)), number - border
        assert excerpt.lines[number] == ERROR
        assert excerpt.lines[number - 1] == rows[number - 2]


@pytest.mark.parametrize("place", [1, 200_000])
def test_message_in_the_first_and_in_the_last_line(place: int) -> None:
    excerpt = of(large((place, ERROR)).rstrip("\n"))
    assert excerpt.lines[place] == ERROR


@pytest.mark.parametrize("size", [997, 65_536, 5_000_001])
def test_excerpt_does_not_depend_on_the_pieces(size: int) -> None:
    chance = random.Random(5)
    rows = log(90_000)
    for number in range(2000, 90_000, 7):
        rows[number] = XID.format(number / 10, chance.randrange(9999))
    for number in chance.sample(range(90_000), 600):
        rows[number] = ERROR
    rows[60_000:60_005] = ["BEGIN report", "a: 1", "b: 2", "END", "c: 3"]
    text = "\n".join(rows)
    assert of(text, size, (READER,)) == of(text, len(text), (READER,))


def test_first_and_last_of_many_are_kept_and_the_rest_counted() -> None:
    text = large(*((number, f"{ERROR} {number}") for number in range(1000, 181_000, 100)))
    kept = [number for number, line in of(text).lines.items() if ERROR in line]
    assert kept[:MOST] == list(range(1000, 1000 + 100 * MOST, 100))
    assert kept[-MOST:] == list(range(181_000 - 100 * MOST, 181_000, 100))
    assert len(kept) == 2 * MOST
    assert of(text).left_out > 1800 - 2 * MOST - 1


def test_log_full_of_messages_keeps_its_beginning_and_its_end() -> None:
    count = 200_000
    excerpt = of("\n".join(XID.format(number, number) for number in range(count)))
    numbers = sorted(excerpt.lines)
    assert numbers[0] == 1
    assert numbers[-1] == count
    assert len(numbers) < count // 10
    assert excerpt.left_out > count // 10


def test_of_a_frequent_literal_the_last_places_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.evidence.search.WORTH", FREQUENT)
    search = Search(("needle", "other"), [2, 5], [FREQUENT, FREQUENT])
    chunk = b"a needle here\n" * FREQUENT + b"the other\n"
    ends = [14 * (FREQUENT - 2) + 2, 14 * (FREQUENT - 1) + 2]
    found = search.find(chunk)
    assert (len(found[0]), found[0][-2:], found[1]) == (FREQUENT, ends, [14 * FREQUENT + 4])
    assert search.find(chunk) == {0: ends, 1: found[1]}
    assert search.find(b"no more\n") == {}
    assert last(b"aaaa", b"aa", 9) == [0, 1, 2]


def test_block_across_chunks_is_read_once() -> None:
    rows = ["BEGIN report", *(f"field {number}: value" for number in range(19_000)), "END", "after"]
    excerpt = of(large((150_000, "\n".join(rows))), readers=(READER,))
    (block,) = excerpt.blocks
    assert block.first == 150_000
    assert block.text.splitlines() == rows[:-2]


def test_beginning_inside_a_block_begins_no_other() -> None:
    text = "BEGIN report\nBEGIN report again\nEND\nBEGIN report\nlast"
    assert [(block.first, block.text.count("\n")) for block in of(text, readers=(READER,)).blocks] == [(1, 2), (4, 2)]


def test_many_blocks_keep_the_first_and_the_last() -> None:
    text = "".join(f"BEGIN report {number}\nEND\n" for number in range(1000))
    kept = [block.first for block in of(text, readers=(READER,)).blocks]
    assert kept == [1, 3, 5, 7, 1993, 1995, 1997, 1999]


def test_line_of_many_megabytes_keeps_what_matters_in_it() -> None:
    line = "x" * (9 << 20)
    excerpt = of(f"first\n{line[: 3 << 20]}{ERROR}{line}\nlast\n")
    assert any(ERROR in text for text in excerpt.lines.values())
    assert max(map(len, excerpt.lines.values())) < 20_000


def test_progress_bar_shows_its_last_state_and_the_message_that_it_overwrote() -> None:
    bar = "".join(f"\r{percent}%|####| {percent}/100" for percent in range(100))
    (line,) = of(f"{bar}\r\n").lines.values()
    assert line == "99%|####| 99/100"
    (line,) = of(f"{bar}\r{ERROR}{bar}\n").lines.values()
    assert ERROR in line
    assert "99/100" in line
    assert len(line) < 200


def test_colours_nul_bytes_and_windows_line_ends_are_gone() -> None:
    excerpt = of(f"\x1b[31m{ERROR}\x1b[0m\r\n\x1b]0;title\x07second\0line\r\n".encode())
    assert excerpt.lines == {1: ERROR, 2: "secondline"}


def test_bytes_that_are_no_text_do_no_harm() -> None:
    data = random.Random(3).randbytes(3 << 20)
    excerpt = of(data + f"\n{ERROR}\n".encode() + data)
    assert ERROR in excerpt.lines.values()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text() -> None:
    row = (XID.format(1, 1) + "\n" + "\n".join(log(20)) + "\n").encode()
    piece = row * ((1 << 20) // len(row))
    of(row)  # the tables are read before
    peaks = []
    for count in (16, 64):
        tracemalloc.start()
        scan(piece, (piece for _ in range(count)), ())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 64 << 20
    assert peaks[1] < 1.2 * peaks[0]


def pieces_of(path: Path) -> bytes:
    return b"".join(source.chunks(str(path)))


def test_gzip(tmp_path: Path) -> None:
    data = large((5, ERROR)).encode()
    path = tmp_path / "kern.log.1.gz"
    path.write_bytes(gzip.compress(data) + gzip.compress(b"a second member\n"))
    assert pieces_of(path) == data + b"a second member\n"


def test_gzip_that_was_cut_off_gives_what_there_is(tmp_path: Path) -> None:
    data = "".join(f"{number} {ERROR}\n" for number in range(50_000)).encode()
    packed = gzip.compress(data)
    path = tmp_path / "cut.log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    found = pieces_of(path)
    assert data.startswith(found)
    assert len(found) > len(data) // 4


def test_gzip_that_unpacks_to_a_thousand_times_its_size_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    assert max(len(piece) for piece in source.chunks(str(path))) <= source.MOST_UNPACKED


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_what_powershell_writes(tmp_path: Path, encoding: str) -> None:
    text = "".join(f"{row}\r\n" for row in (*log(9000), ERROR, "größer"))
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path = tmp_path / "out.txt"
    path.write_bytes(mark + text.encode(encoding))
    assert pieces_of(path).decode() == text


def test_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as file:
            file.write("N")
            file.flush()
            file.write(f"VRM: something\n{ERROR}\n")

    writer = threading.Thread(target=write)
    writer.start()
    told = gather([str(pipe)])
    writer.join()
    (text,) = (reply.value for name, reply in told.replies.items() if name.startswith("text:"))
    assert [line for _, line in text["lines"]] == ["NVRM: something", ERROR]


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.log"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is empty"):
        gather([str(path)])


def test_directory_and_missing_file_are_refused_in_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.log"):
        with pytest.raises(UserError, match="cannot read") as refused:
            gather([str(path)])
        assert "\n" not in str(refused.value)


def test_standard_input_is_read_by_its_sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(f"{ERROR}\n")
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        told = gather(["-"])
    assert "text:standard input" in told.replies


def test_chunks_are_whole_lines_and_nothing_is_lost() -> None:
    data = large(count=150_000).encode()

    def pieces() -> Iterator[bytes]:
        yield from (data[at : at + 10_007] for at in range(0, len(data), 10_007))

    found = list(lines.chunks(pieces()))
    assert b"".join(found) == data
    assert len(found) > 1
    assert all(chunk.endswith(b"\n") for chunk in found)


def test_a_text_without_line_ends_is_cleaned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = 0
    clean = lines.clean

    def counted(line: bytes) -> str:
        nonlocal cleaned
        cleaned += len(line)
        return clean(line)

    monkeypatch.setattr(lines, "clean", counted)
    piece = b"NVRM: Xid (PCI:0000:5e:00): 31, pid=4242, MMU Fault " * 40_000
    scan(piece, (piece for _ in range(12)), ())
    assert 0 < cleaned < 3 * 13 * len(piece)
