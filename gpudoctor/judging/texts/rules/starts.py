"""How programs and containers were started, against what the machine in the text has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoctor.facts import Facts
from gpudoctor.facts.known import known
from gpudoctor.judging.texts.rules.driver import said
from gpudoctor.judging.texts.rules.said import passages
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

IMAGE = Problem(
    id="image-built-for-cpu",
    title="The container image is a build for the CPU",
    why="Many projects publish one image for the CPU and others for GPUs, which differ only in the tag. --gpus adds the GPU and "
    "the driver's libraries to a container, but no CUDA code to its programs.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix(
            "Use the tag of the same image that is built for CUDA, and request the GPU (the project's page lists its tags)",
            "<docker> run --rm <all_gpus> <image> nvidia-smi -L",
            engines=("docker", "podman"),
        ),
        Fix("In Kubernetes: set the image with CUDA in the pod's spec, and request nvidia.com/gpu", engines=("kubernetes",)),
    ),
    references=(
        "https://www.tensorflow.org/install/docker",
        "https://huggingface.co/docs/text-embeddings-inference/supported_models",
    ),
)
SEVERAL = Problem(
    id="model-on-one-gpu-of-several",
    title="The model is loaded on one GPU, although there are several",
    why="An inference server uses as many GPUs as its options name, and by default one. A model that is larger than one GPU must "
    "be split with tensor or pipeline parallelism.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "vLLM: split the model over all GPUs (a number by which its attention heads can be divided)",
            "vllm serve <model_name> --tensor-parallel-size <gpu_count>",
        ),
        Fix('Set the number of GPUs in other programs: --tp (SGLang), --num-shard (TGI), device_map="auto" (Transformers)'),
        Fix("If the GPUs are hidden: request or show them all", 'echo "$CUDA_VISIBLE_DEVICES"; nvidia-smi -L', kind="read"),
    ),
    references=(
        "https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
        "https://github.com/vllm-project/vllm/issues/4417",
    ),
)
ORDER = Problem(
    id="cuda-device-order-differs",
    title="CUDA numbers the GPUs in another order than nvidia-smi",
    why="CUDA sorts the GPUs by speed, nvidia-smi by PCI address. The same number in CUDA_VISIBLE_DEVICES, cuda:N or --gpu-id "
    "then means another card.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Use the order of nvidia-smi in CUDA too",
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            verify='python -c "import torch; print(torch.cuda.get_device_name(0))"',
            kind="set",
            where="shell",
        ),
        Fix("Name the GPU by its UUID instead of a number", "nvidia-smi -L", kind="read"),
    ),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",),
)
PROBLEMS = (IMAGE, SEVERAL, ORDER)
_RUN = re.compile(
    r"""
    (?:^|[\s$#>])(?:docker|podman|nerdctl)\s+(?:run|create)\s(?P<rest>(?:[^\n\\]|\\\r?\n)*)
    """,
    re.MULTILINE | re.VERBOSE,
)
_ASKS = re.compile(
    r"""
    --gpus\b
    | --runtime[= ]nvidia
    | nvidia\.com/gpu
    | driver:\ nvidia
    | /dev/nvidia
    | capabilities:\ \[
    """,
    re.VERBOSE,
)
_IMAGE = re.compile(
    r"""
    (?<![\w/.-])(?P<image>
        [\w./-]+:[\w.-]*(?<![a-z])cpu(?![a-z])[\w.-]*            # a tag with the word cpu
        | [\w.-]+/(?:[\w.-]+/)*[\w.-]*-cpu(?::[\w.-]+)?(?![\w/])  # a name that ends with it
        | tensorflow/tensorflow(?::(?![\w.-]*gpu)[\w.-]+)?(?![\w:/-])
        | ghcr\.io/ggml-org/llama\.cpp:(?:server|full|light)(?![\w-])
        | jupyter/(?:tensorflow|pytorch)-notebook(?::(?!cuda)[\w.-]+)?(?![\w:/-])
    )
    """,
    re.VERBOSE,
)
_USED = re.compile(
    r"""
    (?:^|[\s$#>])(?:docker|podman|nerdctl)[ \t]+(?:run|create)\s
    | ^[ \t]*(?:-[ \t]*)?[\"']?image[\"']?:\s
    | \bFROM\s
    | \"Image\":
    """,
    re.MULTILINE | re.VERBOSE,
)
_BLIND = re.compile(r"(?i)\bon cpu\b|using cpu|no gpu|gpu is not|not (?:using|used)|0 ?%|without gpu")
_ONE = re.compile(r"tensor_parallel_size[=:] ?1\b(?!\d)")
_SERVES = re.compile(
    r"""
    (?:vllm(?:\.entrypoints\S*)?\s+serve|vllm\.entrypoints\.\S+|\bLLM\()(?P<rest>(?:[^\n\\]|\\\r?\n)*)
    """,
    re.VERBOSE,
)
_PARALLEL = re.compile(
    r"""
    --?(?:tensor|pipeline)[-_]parallel[-_]size
    | -tp\b
    | -pp\b
    | tensor_parallel_size
    | data[-_]parallel
    """,
    re.VERBOSE,
)
_NO_MEMORY = re.compile(
    r"""
    CUDA\ out\ of\ memory | OutOfMemoryError
    | No\ available\ memory\ for\ the\ cache\ blocks
    | larger\ than\ the\ maximum\ number\ of\ tokens\ that\ can\ be\ stored\ in\ KV\ cache
    """,
    re.VERBOSE,
)
_JETSON = re.compile(r"nv_tegra_release|\bl4t-|\bL4T\b|[Jj]etson|\btegra\b|-tegra\b|/l4t")
_NO_LIBRARY = re.compile(
    r"""
    lib(?: cu\w+ | nv\w+ )\.so\S*:\ cannot\ open\ shared\ object | libcuda\.so
    | No\ CUDA\ runtime | no\ CUDA-capable\ device | NvRm
    """,
    re.VERBOSE,
)
ON_JETSON = (
    Fix(
        "On the Jetson: start the container again with NVIDIA's runtime, which mounts the board's libraries and devices",
        "docker run --rm -it --runtime nvidia <image>",
        engines=("docker",),
    ),
    Fix(
        "Or make it the default, also for builds and compose",
        "sudo nvidia-ctk runtime configure --runtime=docker --set-as-default && sudo systemctl restart docker",
        risk="disruptive",
        kind="restart",
        where="host",
        needs=("root",),
    ),
)
WHY_JETSON = (
    "On Jetson boards the libraries of CUDA and the driver are those of the board. Only NVIDIA's runtime mounts them into a "
    "container, so an image that is made for Jetson finds no GPU without it."
)


def image_for_cpu(facts: Facts) -> Iterator[Finding]:
    """A GPU is requested for an image without CUDA code, or its program finds none."""
    texts = tuple(passages(facts))
    blind = "False" in facts.shown.answers.values() or "[]" in facts.shown.answers.values()
    blind = blind or any(_BLIND.search(text) for text in texts)
    for text in texts:
        for line in text.split("\n"):
            found = _IMAGE.search(line) if _USED.search(line) else None
            if found and (_ASKS.search(text) and blind):
                words = f"the image {found['image']} is built for the CPU, and a GPU is requested for it"
                yield IMAGE.found(words, {"image_for_cpu": found["image"]}, confidence=Confidence.LIKELY)
                return


def one_of_several(facts: Facts) -> Iterator[Finding]:
    """The memory of one GPU is too small for a model, and the others are not used."""
    count = known(lambda: facts.nvml.count, 0)
    texts = tuple(passages(facts))
    if count < 2 or not any(_NO_MEMORY.search(text) for text in texts):
        return
    served = [match for text in texts for match in _SERVES.finditer(text)]
    alone = any(_ONE.search(text) for text in texts) or (bool(served) and not any(_PARALLEL.search(text) for text in texts))
    if alone:
        words = f"the model is loaded on one GPU, and the machine has {count}"
        yield SEVERAL.found(words, {"gpu_count": count}, confidence=Confidence.LIKELY)


def jetson_without_runtime(facts: Facts) -> Iterator[Finding]:
    """On a Jetson, a container was started without NVIDIA's runtime, and its programs find no GPU or no library."""
    texts = tuple(passages(facts))
    runs = [match["rest"] for text in texts for match in _RUN.finditer(text)]
    if not runs or not any(_JETSON.search(text) for text in texts) or any(map(_ASKS.search, runs)):
        return
    daemon = known(lambda: facts.engines.docker)
    if (daemon is not None and daemon.default_runtime == "nvidia") or said(facts, "Default Runtime: nvidia"):
        return
    if "False" in facts.shown.answers.values() or any(_NO_LIBRARY.search(text) for text in texts):
        problem = replace(facts.problems["container-no-gpus-flag"], why=WHY_JETSON, fixes=ON_JETSON)
        words = "docker run has no --runtime nvidia, which a Jetson needs for the GPU"
        yield problem.found(words, confidence=Confidence.LIKELY)


def docker_of_snap(facts: Facts) -> Iterator[Finding]:
    """snap list has Docker, and a container gets no GPU."""
    if "docker" in facts.shown.snaps and (said(facts, "could not select device driver") or said(facts, "nvidia-container-cli")):
        words = "snap list has docker: the daemon of the snap finds neither the driver nor the container toolkit"
        yield facts.problems["docker-snap"].found(words, confidence=Confidence.LIKELY)


def ollama_without_backend(facts: Facts) -> Iterator[Finding]:
    """Ollama's server finds the GPU, and loads only its library for the CPU."""
    text = "\n".join(passages(facts))
    loaded = set(_BACKEND.findall(text))
    if loaded == {"CPU"} and _FOUND_GPU.search(text):
        problem = replace(facts.problems["program-built-without-cuda"], fixes=WITH_BACKEND)
        words = "Ollama finds the GPU, but loads only its library for the CPU: the one for CUDA is not installed"
        yield problem.found(words, {"loaded": "CPU"}, confidence=Confidence.LIKELY)


_BACKEND = re.compile(r"load_backend: loaded (\w+) backend")
_FOUND_GPU = re.compile(r'msg="inference compute".*library=(?:cuda|CUDA)')
WITH_BACKEND = (
    Fix(
        "Show which libraries are there (cuda_v12 or cuda_v13 are missing)",
        "ls /usr/lib/ollama /usr/local/lib/ollama",
        kind="read",
    ),
    Fix("From a distribution: install its package with CUDA, such as ollama-cuda on Arch"),
    Fix(
        "Otherwise: remove the old folder and install the release of Ollama itself",
        "sudo rm -r /usr/local/lib/ollama",
        risk="destructive",
        needs=("root",),
    ),
)


def hidden_from_service(facts: Facts) -> Iterator[Finding]:
    """A variable hides the GPUs from Ollama, which then runs its models on the CPU."""
    value = known(lambda: facts.environment.get("CUDA_VISIBLE_DEVICES"))
    if facts.shown.ollama_on_cpu and value is not None and not re.match(r"\s*(?:\d|GPU-|MIG-)", value):
        words = f"CUDA_VISIBLE_DEVICES is {value!r} for the service, and Ollama runs its model on the CPU"
        evidence = {"CUDA_VISIBLE_DEVICES": value}
        yield facts.problems["cuda-visible-devices-hides-all-gpus"].found(words, evidence, confidence=Confidence.LIKELY)


def other_order(facts: Facts) -> Iterator[Finding]:
    """A program that may use GPU N of nvidia-smi prints the name of another."""
    names = [known(lambda gpu=gpu: gpu.name, "") for gpu in known(lambda: facts.nvml.gpus, ())]  # type: ignore[misc]
    for text in passages(facts):
        for match in _CHOSEN.finditer(text):
            index, name = int(match["index"]), match["name"].strip()
            if index < len(names) and names[index] and name in names and name != names[index] and "PCI_BUS_ID" not in text:
                words = f"GPU {index} of nvidia-smi is {names[index]}, but CUDA_VISIBLE_DEVICES={index} gives {name}"
                yield ORDER.found(words, {"index": index, "wanted": names[index], "given": name}, confidence=Confidence.LIKELY)
                return


_CHOSEN = re.compile(
    r"""
    CUDA_VISIBLE_DEVICES=(?P<index>\d+)\b [^\n]*
    (?: \n[^\n]* ){0,2}? get_device_name\(0?\)[^\n]* \n
    \s*["']?(?P<name>(?:NVIDIA|GeForce|Tesla|Quadro)\ [^"'\n]+)
    """,
    re.VERBOSE,
)
RULES = (
    *(image_for_cpu, one_of_several, jetson_without_runtime, docker_of_snap),
    *(ollama_without_backend, hidden_from_service, other_order),
)
