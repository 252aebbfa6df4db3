"""What an image requires from a machine, according to its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpudoctor import knowledge
from gpudoctor.containers.images import requirement

Pair = tuple[int, int]
ChosenBy = Literal["entrypoint", "runtime"]


@dataclass(frozen=True)
class Needs:
    """What an image requires from a machine. Fields that are None or empty are unknown, and are not judged."""

    cuda: Pair | None = None
    driver: str | None = None  # the oldest one that includes this CUDA version
    compat: str | None = None  # the driver whose libraries are in the image's cuda-compat; None without cuda-compat
    # NGC's entrypoint uses cuda-compat only if that works, NVIDIA's runtime whenever it is newer than the driver.
    compat_chosen_by: ChosenBy = "runtime"
    branches: tuple[int, ...] = ()  # the driver branches that the image itself names for cuda-compat
    require: tuple[str, ...] = ()  # NVIDIA_REQUIRE_CUDA and similar variables
    least: Pair | None = None  # the oldest compute capability that the framework is built for
    architectures: tuple[str, ...] = ()  # sm_90, compute_90: those that the framework is built for
    processors: tuple[str, ...] = ()  # amd64, arm64
    any_gpu: bool = False  # its GPU code is PTX that the driver compiles for any GPU

    @property
    def has_kernels(self) -> bool:
        """Whether it contains GPU programs, not only CUDA."""
        return bool(self.least or self.architectures)


def needs_of(config: Mapping[str, Any], known: Needs | None = None) -> Needs:
    """The requirements in an image's configuration, from a registry or `image inspect`; `known` fills in missing ones."""
    settings = config.get("config") or config.get("Config") or config
    env = dict(entry.partition("=")[::2] for entry in settings.get("Env") or () if "=" in entry)
    processor = config.get("architecture") or config.get("Architecture")
    release = pair_of(env.get("CUDA_VERSION", ""))
    compat, chosen_by = _compat(env, release)
    require = tuple(_requirements(env, release))
    said = Needs(
        cuda=release,
        driver=knowledge.shipped_driver(release) if release else None,
        compat=compat,
        compat_chosen_by=chosen_by,
        branches=named_branches(require),
        require=require,
        architectures=_architectures(env.get("TORCH_CUDA_ARCH_LIST", "")) if "PYTORCH_VERSION" in env else (),
        processors=(processor,) if processor else (),
    )
    return _filled(said, known) if known else said


def _filled(said: Needs, known: Needs) -> Needs:
    names = ("cuda", "driver", "compat", "branches", "least", "architectures")
    chosen_by = said.compat_chosen_by if said.compat else known.compat_chosen_by
    return replace(said, compat_chosen_by=chosen_by, **{name: getattr(said, name) or getattr(known, name) for name in names})


def _compat(env: Mapping[str, str], release: Pair | None) -> tuple[str | None, ChosenBy]:
    if "CUDA_DRIVER_VERSION" in env:
        return env["CUDA_DRIVER_VERSION"], "entrypoint"
    is_nvidia = "NV_CUDA_COMPAT_PACKAGE" in env or "NV_CUDA_CUDART_VERSION" in env
    return (knowledge.shipped_driver(release) if is_nvidia and release else None), "runtime"


def _requirements(env: Mapping[str, str], release: Pair | None) -> Iterator[str]:
    """As NVIDIA's runtime collects them: internal/config/image/cuda_image.go of nvidia-container-toolkit."""
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true"):
        return
    for name, value in env.items():
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK"):
            yield value
    if release and not env.get("NVIDIA_REQUIRE_CUDA"):
        yield "cuda>={}.{}".format(*release)


def named_branches(require: tuple[str, ...]) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(branch for text in require for branch in requirement.branches(text)))
    except ValueError:
        return ()


def _architectures(text: str) -> tuple[str, ...]:
    """("sm_86", "sm_90", "compute_90") from TORCH_CUDA_ARCH_LIST="8.6 9.0+PTX"."""
    found = re.findall(r"(\d+)\.(\d)([af]?)(\+PTX)?", text)
    real = [f"sm_{major}{minor}{suffix}" for major, minor, suffix, _ in found]
    return (*real, *(f"compute_{major}{minor}{suffix}" for major, minor, suffix, ptx in found if ptx))


def pair_of(version: str) -> Pair | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def dotted(pair: Pair) -> str:
    return "{}.{}".format(*pair)
