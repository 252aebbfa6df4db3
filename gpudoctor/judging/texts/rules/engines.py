"""Which part of the GPU a program of a text uses: the encoder, the backend of Ollama, the module for displays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.said import has_gpu, is_for_cpus, passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

SOFTWARE_ENCODER = Problem(
    id="video-encoded-on-cpu",
    title="The program encodes video on the CPU, although a GPU is there",
    why="libx264, libx265 and libsvtav1 are encoders for the CPU. The program chose one, because hardware encoding is switched "
    "off in its settings, or the GPU's encoder did not fit the stream.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Switch hardware encoding on in the settings of the program, and restart the stream"),
        Fix("Show that the GPU's encoder works here", "ffmpeg -hide_banner -encoders | grep nvenc", kind="read"),
    ),
    references=("https://github.com/jellyfin/jellyfin/issues/6206",),
)
ONLY_CPU = Problem(
    id="ollama-lacks-cuda-backend",
    title="Ollama has no library for CUDA, and computes on the CPU",
    why="Ollama loads a library for each kind of processor from its lib/ollama folder. Those for CUDA are missing there, as "
    "after an incomplete update or with a package for the CPU only.",
    action=Action.INSTALL,
    fixes=(
        Fix(
            "Show the libraries (cuda_v12 and cuda_v13 are those for NVIDIA)",
            "ls /usr/lib/ollama /usr/local/lib/ollama",
            kind="read",
        ),
        Fix("On Arch Linux: install the package ollama-cuda, which adds them", on=("arch",)),
        Fix("Install Ollama again with its own installer, after removing the old lib/ollama folder"),
    ),
    references=("https://github.com/ollama/ollama/issues/9704",),
)
HIDDEN_BY_AMD = Problem(
    id="amd-variable-stops-cuda",
    title="ROCR_VISIBLE_DEVICES makes Ollama compute on the CPU",
    why="Slurm sets ROCR_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL, which are for AMD GPUs, in addition to CUDA_VISIBLE_DEVICES. "
    "Ollama finds the NVIDIA GPU, but starts its runner for the AMD GPUs that the variable names, and these do not exist.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "In the job, before Ollama starts: unset them",
            "unset ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL",
            kind="set",
            where="shell",
            verify="env | grep VISIBLE",
        ),
        Fix("For all jobs: add Flags=nvidia_gpu_env to the GPUs in gres.conf, then restart slurmd on the nodes"),
    ),
    references=("https://github.com/ollama/ollama/issues/11841", "https://slurm.schedmd.com/gres.conf.html"),
)
NO_DISPLAY_MODULE = Problem(
    id="display-module-not-loaded",
    title="nvidia is loaded, but not nvidia_drm, which displays and PRIME need",
    why="The X server and Wayland reach the GPU through nvidia_modeset and nvidia_drm. With nvidia alone nvidia-smi and CUDA "
    "work, and no program can draw with the GPU.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Load it now and at each boot, then restart the display manager",
            "sudo modprobe nvidia_drm && echo nvidia_drm | sudo tee /etc/modules-load.d/nvidia-drm.conf",
            verify="xrandr --listproviders",
            undo="sudo rm /etc/modules-load.d/nvidia-drm.conf",
            on=("host",),
            kind="set",
            needs=("root",),
        ),
    ),
    references=("https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/kms.html",),
)
PROBLEMS = (SOFTWARE_ENCODER, ONLY_CPU, HIDDEN_BY_AMD, NO_DISPLAY_MODULE)

_ENCODES = re.compile(
    r"->\ \w+\ \((?P<encoder>libx264|libx265|libsvtav1)\)|-c(?:odec)?:v(?::0)?\ (?P<option>libx264|libx265)\b", re.VERBOSE
)
_MEANT = re.compile(r"(?i)\bnvenc\b|hardware ?(?:acceleration|encoding)|\bhwaccel|\bqsv\b|\bvaapi\b")
_BUSY_CPU = re.compile(r"(?i)\bcpu\b|slow|\bfps\b|stutter|buffer")


def encoded_on_cpu(facts: Facts) -> Iterator[Finding]:
    """FFmpeg's log names an encoder for the CPU, and the text says that the GPU was meant."""
    text = "\n".join(passages(facts))
    match = _ENCODES.search(text)
    rest = _ENCODES.sub("", text)
    if match and known(lambda: facts.nvml.count, 0) and _MEANT.search(rest) and _BUSY_CPU.search(rest):
        name = match["encoder"] or match["option"]
        off = re.search(r"(?i)<EnableHardwareEncoding>\s*false", text)
        words = f"the stream is encoded with {name}" + (", and EnableHardwareEncoding is false" if off else "")
        yield SOFTWARE_ENCODER.found(words, {"encoder": name}, confidence=Confidence.LIKELY)


_ON_GPU = re.compile(r"\b\d+% GPU\b|CUDA compute capability|inference compute\b[^\n]*library=cuda")
_BACKENDS = re.compile(r"load_backend: loaded (?P<name>\w+) backend from (?P<path>\S+)")


_SEEN = re.compile(r"inference compute\b[^\n]{0,300}library=cuda|\blibrary=cuda\b|using device CUDA\d")
_IN_JOB = re.compile(r"(?i)\b(?:srun|sbatch|salloc|slurm)\b")
_FOR_AMD = re.compile(r"\bROCR_VISIBLE_DEVICES[=:][\"']?\d")


def hidden_by_amd_variable(facts: Facts) -> Iterator[Finding]:
    """Ollama computes on the CPU, and the variable for AMD's GPUs is set; or it sees the GPU, but not in a job of Slurm."""
    text = "\n".join(passages(facts))
    only_cpu = {match["name"] for match in _BACKENDS.finditer(text)} == {"CPU"} and "ollama" in text
    on_cpu = only_cpu or (facts.shown.ollama_share or {}).get("cpu") == 100
    if on_cpu and (match := _FOR_AMD.search(text)):
        words = f"{match[0]} is set, and Ollama computes on the CPU"
        yield HIDDEN_BY_AMD.found(words, {"variable": "ROCR_VISIBLE_DEVICES"}, confidence=Confidence.LIKELY)
    elif only_cpu and _IN_JOB.search(text) and _SEEN.search(text):
        words = "Ollama finds the GPU, and in the job it loads only its library for the CPU"
        yield HIDDEN_BY_AMD.found(words, {"could_be": [ONLY_CPU.id]}, confidence=Confidence.LIKELY)


def without_backend(facts: Facts) -> Iterator[Finding]:
    """Ollama's log loads only the library for the CPU, and the text shows a GPU."""
    found = [match for text in passages(facts) for match in _BACKENDS.finditer(text)]
    is_meant = has_gpu(facts) or any(_ON_GPU.search(text) for text in passages(facts))
    is_ollama = any("ollama" in match["path"] for match in found)
    if any(hidden_by_amd_variable(facts)):
        return
    if is_ollama and is_meant and {match["name"] for match in found} == {"CPU"}:
        words = f"Ollama loaded only {found[0]['path'].rsplit('/', 1)[-1]}, and no library for CUDA"
        yield ONLY_CPU.found(words, {"library": found[0]["path"]}, confidence=Confidence.LIKELY)


_DRAWS = re.compile(
    r"""
    \bprime\b|__NV_PRIME|glxinfo|listproviders|external\ (?:monitor|display)|wayland|\bxorg\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


_DRAWN = re.compile(
    r"""
    nvidia\ +\d+\ +\d+\ \S*nvidia_modeset
    | OpenGL\ renderer\ string:\ (?:NVIDIA|Quadro|GeForce|Tesla)
    """,
    re.VERBOSE,
)


def no_display_module(facts: Facts) -> Iterator[Finding]:
    """lsmod shows nvidia without nvidia_drm, and the text misses a display or PRIME."""
    is_missing = facts.shown.is_loaded("nvidia") and facts.shown.is_loaded("nvidia_drm") is False
    draws = any("NVIDIA" in name for name in facts.shown.providers.values()) or any(map(_DRAWN.search, passages(facts)))
    if is_missing and not draws and any(map(_DRAWS.search, passages(facts))):
        words = "lsmod lists nvidia, and neither nvidia_modeset nor nvidia_drm"
        yield NO_DISPLAY_MODULE.found(words, {"missing": "nvidia_drm"}, confidence=Confidence.LIKELY)


_VIRTUAL = re.compile(
    r"""
    ^\s*[\da-f:.]+\ (?:VGA|Display|3D)[^\n]*(?P<card>
    VMware\ SVGA[^\n]* | VirtualBox[^\n]* | InnoTek[^\n]* | QXL[^\n]* | Virtio[^\n]*
    | Cirrus[^\n]* | Hyper-V[^\n]* | bochs[^\n]* )
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
TITLE = "This is a virtual machine without a GPU"
WHY = "The only display adapter is the hypervisor's own. Programs find no GPU until the host passes one to the machine."
WAYS = (
    Fix("On the host: pass a GPU (or a vGPU) to this virtual machine; VirtualBox and VMware's desktop products cannot"),
    Fix("Run the program on the host or in WSL 2, which share the GPU", "lspci | grep -iE 'vga|3d|nvidia'", kind="read"),
)


def guest_without_gpu(facts: Facts) -> Iterator[Finding]:
    """lspci of a virtual machine lists only the hypervisor's adapter, and PyTorch sees no GPU."""
    text = "\n".join(passages(facts))
    card = _VIRTUAL.search(text)
    is_meant = is_for_cpus(facts) or "+cpu" in (known(lambda: facts.python.torch_version) or "")
    if card and "False" in facts.shown.answers.values() and not is_meant and "NVIDIA Corporation" not in text:
        words = f"lspci lists only {' '.join(card['card'].split())[:50]}"
        problem = replace(facts.problems["no-driver-found"], title=TITLE, why=WHY, fixes=WAYS)
        yield problem.found(words, {"adapter": " ".join(card["card"].split())[:50]}, confidence=Confidence.LIKELY)


RULES = (encoded_on_cpu, hidden_by_amd_variable, without_backend, no_display_module, guest_without_gpu)
