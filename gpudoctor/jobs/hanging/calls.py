"""Numbers of the system calls in which programs wait. https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html"""

from __future__ import annotations

import os
from typing import NamedTuple

_X86_64 = {
    0: "read",
    1: "write",
    2: "open",
    3: "close",
    7: "poll",
    9: "mmap",
    16: "ioctl",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    20: "writev",
    23: "select",
    24: "sched_yield",
    34: "pause",
    35: "nanosleep",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    61: "wait4",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    87: "unlink",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    4: "stat",
    5: "fstat",
    6: "lstat",
    21: "access",
    26: "msync",
    82: "rename",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    217: "getdents64",
    262: "newfstatat",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
    332: "statx",
    441: "epoll_pwait2",
    426: "io_uring_enter",
    65: "semop",
    220: "semtimedop",
    449: "futex_waitv",
}
_ARM64 = {
    63: "read",
    64: "write",
    56: "openat",
    57: "close",
    73: "ppoll",
    222: "mmap",
    29: "ioctl",
    67: "pread64",
    68: "pwrite64",
    65: "readv",
    66: "writev",
    72: "pselect6",
    124: "sched_yield",
    101: "nanosleep",
    203: "connect",
    202: "accept",
    206: "sendto",
    207: "recvfrom",
    211: "sendmsg",
    212: "recvmsg",
    260: "wait4",
    25: "fcntl",
    32: "flock",
    82: "fsync",
    83: "fdatasync",
    98: "futex",
    115: "clock_nanosleep",
    22: "epoll_pwait",
    95: "waitid",
    79: "newfstatat",
    61: "getdents64",
    242: "accept4",
    291: "statx",
    426: "io_uring_enter",
    137: "rt_sigtimedwait",
    133: "rt_sigsuspend",
    441: "epoll_pwait2",
    193: "semop",
    192: "semtimedop",
    227: "msync",
    449: "futex_waitv",
}
NAMES = {"x86_64": _X86_64, "aarch64": _ARM64}.get(os.uname().machine, {})
ON_DESCRIPTOR = {
    *("read", "write", "close", "ioctl", "pread64", "pwrite64", "readv", "writev", "connect", "accept", "accept4", "sendto"),
    *("recvfrom", "sendmsg", "recvmsg", "fcntl", "flock", "fsync", "fdatasync", "fstat", "getdents64"),
}
POLLS = {"poll", "ppoll"}
EPOLLS = {"epoll_wait", "epoll_pwait", "epoll_pwait2"}
PATH_FIRST = {"open", "stat", "lstat", "access", "unlink", "rename"}
PATH_SECOND = {"openat", "newfstatat", "statx"}
WAITS_FOR_CHILD = {"wait4", "waitid"}


class Call(NamedTuple):
    """The system call in which a thread is. name: "" if it is in none, or that may not be read."""

    name: str
    arguments: tuple[int, ...]


def call_of(text: str) -> Call:
    """From /proc/PID/task/TID/syscall.

    >>> call_of("0 0x3 0x7f75 0x20000 0x0 0x0 0x0 0x7ffe 0x7f75").arguments[0]
    3
    """
    fields = text.split()
    if len(fields) < 7 or not fields[0].isdigit():
        return Call("", ())
    return Call(NAMES.get(int(fields[0]), f"system call {fields[0]}"), tuple(int(field, 16) for field in fields[1:7]))
