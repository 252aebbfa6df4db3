"""Images for tests, made here from the packages of Debian and Ubuntu: no registry is needed, and no package is set up.

Each is made once on this machine and kept as gpudoctor-test:NAME until its recipe changes. Standard library only, so that
`python3 tests/lab_images.py [NAME ...]` can make them while the rest is still being installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "gpudoctor-test"
STUBS = Path(__file__).parent / "stubs"
LABEL = "gpudoctor-test.recipe"
DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
SHELL = (
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "libc-bin",
    "sed",
    "util-linux",
)
HOOKS = "/usr/share/mmdebstrap/hooks"

# What the packages' own scripts would have done, as far as a test can see it.
FINISH = """\
set -e
cd "$1"
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
test -e usr/bin/sh || ln -s dash usr/bin/sh
chroot . /sbin/ldconfig
if [ -e usr/bin/python3 ]; then chroot . python3 -m compileall -q usr/lib/python3*; fi
rm -rf usr/share/doc usr/share/locale usr/share/man usr/share/info var/cache/* var/lib/apt var/lib/dpkg/info
"""


@dataclass(frozen=True)
class Recipe:
    suite: str
    packages: tuple[str, ...]
    mirror: str = DEBIAN

    @property
    def hash(self) -> str:
        return hashlib.sha256(repr((self, SHELL, FINISH)).encode()).hexdigest()[:16]


RECIPES = {
    "bookworm": Recipe("bookworm", ("python3",)),
    "bare": Recipe("bookworm", ()),
    "minimal": Recipe("bookworm", ("python3-minimal",)),
    "python3.9": Recipe("bullseye", ("python3",)),
    "python3.10": Recipe("jammy", ("python3",), UBUNTU),
    "python3.12": Recipe("noble", ("python3",), UBUNTU),
    "python3.13": Recipe("trixie", ("python3",)),
}
NAMES = (*RECIPES, "ngc", "ubuntu-apt")
PYTHONS = {"3.9": "python3.9", "3.10": "python3.10", "3.11": "bookworm", "3.12": "python3.12", "3.13": "python3.13"}


def make(name: str) -> str:
    """The image's reference, gpudoctor-test:NAME, made if it is not there or its recipe has changed."""
    reference = f"{PREFIX}:{name}"
    with locked(name), replacing(reference):
        if name == "ngc":
            _ngc(reference, make("bookworm"))
        elif name == "ubuntu-apt":
            _ubuntu(reference)
        elif _label(reference) != RECIPES[name].hash:
            _unpack(reference, RECIPES[name])
    return reference


@contextmanager
def replacing(reference: str) -> Iterator[None]:
    """Removes the image that had the reference, if another one gets it."""
    before = _inspect(reference, "{{.Id}}")
    yield
    if before and before != _inspect(reference, "{{.Id}}"):
        subprocess.run(("docker", "image", "rm", before), capture_output=True)  # fails while a container uses it


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time, whoever it belongs to."""
    path = cache() / f"{name}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cache() -> Path:
    """Where what takes long to get is kept between runs."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / PREFIX
    path.mkdir(parents=True, exist_ok=True)
    return path


def run(*command: str | Path, **options: object) -> str:
    """What a command prints; what it says instead is raised with it."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}{done.stdout}")
    return str(done.stdout)


def _inspect(reference: str, form: str) -> str:
    """Nothing where there is no such image."""
    command = ("docker", "image", "inspect", "--format", form, reference)
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _label(reference: str) -> str:
    return _inspect(reference, f'{{{{index .Config.Labels "{LABEL}"}}}}')


def _unpack(reference: str, recipe: Recipe) -> None:
    packages = ",".join((*SHELL, *recipe.packages))
    trusted = "[trusted=yes] " if recipe.mirror == UBUNTU else ""
    command = (
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=extract",
        f"--include={packages}",
        f"--setup-hook={HOOKS}/merged-usr/setup00.sh",
        f"--extract-hook={FINISH}",
        recipe.suite,
        "-",
        f"deb {trusted}{recipe.mirror} {recipe.suite} main",
    )
    _import(reference, command, 'CMD ["bash"]', f"LABEL {LABEL}={recipe.hash}")


def _ubuntu(reference: str) -> None:
    """A stand-in for nvidia/cuda:…-ubuntu24.04, with apt, what the doctor's recipe installs and this machine's certificate
    authorities. Of Ubuntu's packages it goes on to see only the part main, whose lists are soon read.
    """
    authorities = Path(os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt")
    mirror = f"deb [trusted=yes] {UBUNTU} noble main"
    options = ["--quiet", "--mode=root", "--variant=apt", "--include=passwd,python3-venv"]
    options += [f"--customize-hook=echo '{mirror}' >\"$1/etc/apt/sources.list\""]
    changes = []
    if authorities.is_file():
        options.append(f"--customize-hook=upload {authorities} /authorities.crt")
        changes = ["ENV PIP_CERT=/authorities.crt"]
    command = ("mmdebstrap", *options, "noble", "-", f"{mirror} universe")
    made_of = hashlib.sha256(repr(command).encode()).hexdigest()[:16]
    if _label(reference) != made_of:
        _import(reference, command, *changes, f"LABEL {LABEL}={made_of}")


def _import(reference: str, command: tuple[str, ...], *changes: str) -> None:
    """Makes an image of the files that a command writes as an archive."""
    options = [word for change in changes for word in ("--change", change)]
    importing = ("docker", "import", *options, "-", reference)
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as packed:
        imported = subprocess.run(importing, stdin=packed.stdout, capture_output=True, text=True)
        packed.wait()
        said.seek(0)
        if packed.returncode or imported.returncode:
            subprocess.run(("docker", "image", "rm", reference), capture_output=True)  # else it would be taken for the whole
            raise RuntimeError(f"{reference} could not be made\n{said.read()}{imported.stderr}")


def _ngc(reference: str, base: str) -> None:
    """A look-alike of NVIDIA's images: see tests/stubs/lab-ngc."""
    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(STUBS / "lab-ngc", context, dirs_exist_ok=True)
        _compat(Path(context) / "compat")
        command = ("docker", "build", "--quiet", "--network=none", "--build-arg", f"BASE={base}", "--tag", reference, context)
        run(*command, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def _compat(folder: Path) -> None:
    """A libcuda of a newer driver, as an image brings it for forward compatibility: CUDA 12.6, which came with 560."""
    folder.mkdir()
    library = folder / "libcuda.so.560.35.03"
    flags = ("-std=c11", "-D_DEFAULT_SOURCE", "-shared", "-fPIC", "-DCUDA_VERSION=12060")
    run("gcc", *flags, "-Wl,-soname,libcuda.so.1", "-Wl,--build-id=none", "-o", library, STUBS / "lab_cuda.c")
    (folder / "libcuda.so.1").symlink_to(library.name)


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        print(make(each))  # noqa: T201
