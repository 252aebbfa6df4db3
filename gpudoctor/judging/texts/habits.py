"""Problems of how programs use GPUs, which people describe and no message names. Pure."""

from __future__ import annotations

from gpudoctor.model import Action, Fix, Problem, Status

NOT_FASTER = Problem(
    id="several-gpus-not-faster",
    title="Several GPUs train no faster than one",
    why="DataParallel copies the model from one GPU to the others in each step and runs all in one process. With one process "
    "per GPU the exchange of gradients, small batches, or data that arrive too slowly can still cost as much as the GPUs "
    "save. The time of a step stays the same at best: each step then covers as many batches as there are GPUs.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Compare samples per second, or the time of an epoch, with the same batch on each GPU: not steps per second"),
        Fix(
            "Use DistributedDataParallel instead of DataParallel: one process for each GPU",
            "torchrun --nproc-per-node=gpu train.py",
            kind="manual",
        ),
        Fix("Give each GPU the batch that one GPU had, and each process enough loader workers"),
        Fix("Reduce the exchange: gradient accumulation in no_sync(), or bfloat16 gradients"),
        Fix("Show how the GPUs are connected: PHB, NODE and SYS are slower than PIX and NV", "nvidia-smi topo -m", kind="read"),
    ),
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
)
RESERVED = Problem(
    id="server-reserves-gpu-memory",
    title="The server reserves most of the GPU's memory for its KV cache",
    why="vLLM takes 90 % of the GPU when it starts, however small the model is, and SGLang a similar share. What the weights "
    "leave of it stores keys and values of the tokens: more of it means more requests at a time. It is not a leak.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "vLLM: reserve a smaller share (0.9 is the default)",
            "vllm serve <model_name> --gpu-memory-utilization 0.5",
            kind="manual",
        ),
        Fix(
            "SGLang: reserve a smaller share",
            "python -m sglang.launch_server --model-path <model_name> --mem-fraction-static 0.5",
            kind="manual",
        ),
        Fix("Two servers on one GPU: choose shares that are together below 0.95, and start one after the other"),
    ),
    references=("https://docs.vllm.ai/en/latest/configuration/conserving_memory.html",),
)
COMPILED = Problem(
    id="package-compiled-for-hours",
    title="pip compiles a GPU package, which can take hours",
    why="No wheel of the package fits this Python, PyTorch and CUDA, so pip compiles all its kernels and prints nothing "
    "meanwhile. Without Ninja it does so on one core; with Ninja on many cores it can run out of memory.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix("Install a wheel from the project's releases whose name has your Python (cp312), PyTorch and CUDA"),
        Fix("Install a PyTorch release for which the project offers wheels"),
        Fix("To compile it anyway: install Ninja first", "<python> -m pip install ninja packaging wheel", needs=("network",)),
        Fix(
            "Compile only for your GPU, with as many jobs as fit into memory (about 4 GB each)",
            "export MAX_JOBS=4 "
            "TORCH_CUDA_ARCH_LIST=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | head -n 1)",
            kind="set",
            where="shell",
        ),
        Fix("See whether it still compiles: nvcc and cicc are among the busy processes", "top -b -n 1 | head -n 20", kind="read"),
    ),
    references=("https://github.com/Dao-AILab/flash-attention#installation-and-features",),
)
STILL_REFERRED = Problem(
    id="objects-keep-gpu-memory",
    title="Python objects, or PyTorch's cache, still keep the GPU memory",
    why="Memory returns to PyTorch when the last variable that refers to a tensor is gone: models, optimizers, outputs, "
    "tracebacks and the results that a notebook keeps count. PyTorch then caches it for later, so nvidia-smi shows it as "
    "used. The CUDA context, a few hundred MiB, stays until the process ends.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("In the program: delete all variables that refer to the model, then call gc.collect() and torch.cuda.empty_cache()"),
        Fix("Compare torch.cuda.memory_allocated() (tensors) with torch.cuda.memory_reserved() (with the cache)"),
        Fix("In a notebook: restart the kernel, because its outputs and the last traceback keep objects"),
        Fix("To return all of it: run the work in a process that ends"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",),
)
CPU_ONLY = Problem(
    id="library-without-gpu-support",
    title="The library computes on the CPU only",
    why="NumPy, pandas and most of scikit-learn and statsmodels have no code for GPUs, whatever driver or CUDA is installed. "
    "Other libraries offer the same functions on the GPU.",
    action=Action.INSTALL,
    status=Status.WARN,
    fixes=(
        Fix(
            "scikit-learn: run the program with cuML, unchanged",
            "<python> -m pip install cuml-cu12 && <python> -m cuml.accel <script>",
            kind="manual",
            needs=("network",),
        ),
        Fix(
            "pandas: run the program with cuDF, unchanged",
            "<python> -m pip install cudf-cu12 && <python> -m cudf.pandas <script>",
            kind="manual",
            needs=("network",),
        ),
        Fix("NumPy: import cupy as np, and copy the results back with cupy.asnumpy"),
    ),
    references=("https://docs.rapids.ai/api/cuml/stable/cuml-accel/",),
)
LOCKED = Problem(
    id="extension-cache-locked",
    title="A lock of an interrupted build blocks the compilation of kernels",
    why="DeepSpeed, FlashInfer and other packages compile kernels when they are first used, and lock the folder meanwhile. A "
    "build that was killed leaves its lock, and every later process waits for it without a message.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("End all processes of the program, so that none of them compiles"),
        Fix(
            "Delete what the interrupted build left; the next start compiles it again",
            "rm -rf ~/.cache/torch_extensions ~/.cache/flashinfer",
            risk="destructive",
            kind="manual",
        ),
        Fix("Show the locks", "find ~/.cache/torch_extensions ~/.cache/flashinfer -name '*lock*'", kind="read"),
    ),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/4443", "https://github.com/sgl-project/sglang/issues/3765"),
)
LARGER_BATCH = Problem(
    id="larger-batch-on-several-gpus",
    title="Several GPUs train with a larger batch and the old learning rate",
    why="Each GPU takes a batch, so a step covers as many samples as all together, and an epoch has fewer steps. With the "
    "same learning rate the model then learns slower or ends worse. Batch normalisation, in contrast, sees only the "
    "samples of one GPU.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Scale the learning rate with the total batch (twice the GPUs, twice the rate), and warm it up over some epochs"),
        Fix("Keep the total batch instead: divide the batch size of one GPU by the number of GPUs"),
        Fix("Call sampler.set_epoch(epoch) in each epoch, and use SyncBatchNorm if the batch on each GPU is small"),
        Fix("Check that the loss is averaged over the GPUs, not summed, and that each rank has other samples"),
    ),
    references=("https://arxiv.org/abs/1706.02677",),
)
EVERY_GPU = Problem(
    id="program-uses-every-gpu",
    title="The program uses every GPU that it sees",
    why="Trainers wrap the model in DataParallel, and device_map='auto' divides it, as soon as several GPUs are visible. A "
    "device in the program does not change that.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Hide the other GPUs before the program starts", "export CUDA_VISIBLE_DEVICES=0", kind="set", where="shell"),
        Fix("In a notebook: set os.environ['CUDA_VISIBLE_DEVICES'] in the first cell, before the first import of torch"),
    ),
    references=("https://huggingface.co/docs/transformers/main/en/main_classes/trainer",),
)
EVALUATION = Problem(
    id="graph-kept-in-evaluation",
    title="The evaluation keeps more in GPU memory than the training",
    why="Without torch.no_grad() every output keeps the whole graph that computed it. Trainers also collect the predictions "
    "of all batches on the GPU, and the batch or image size of the evaluation can be larger than that of the training.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("In the program: run the evaluation in `with torch.inference_mode():`, and keep outputs with .detach().cpu()"),
        Fix("With Transformers: set eval_accumulation_steps=1 and a small per_device_eval_batch_size"),
        Fix("With Transformers: reduce what is collected with preprocess_logits_for_metrics, for example to the largest logit"),
        Fix("Call torch.cuda.empty_cache() before the evaluation if its tensors have other sizes than those of the training"),
    ),
    references=("https://docs.pytorch.org/docs/stable/notes/autograd.html",),
)
SOLVER = Problem(
    id="conda-solver-slow",
    title="conda searches long for packages that fit each other",
    why="conda's old solver tries combinations of all channels, which takes minutes to hours in a large environment, and can "
    "end without a result. Mixed channels and an installed base environment make it worse.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix(
            "Install into a new environment, not into base", "conda create -n gpu python=3.12", kind="install", needs=("network",)
        ),
        Fix("Use the fast solver (standard since conda 23.10)", "conda update -n base conda", kind="install", needs=("network",)),
        Fix(
            "For PyTorch: use pip in the new environment, as PyTorch has no conda packages since 2.6",
            "python -m pip install torch torchvision --index-url https://download.pytorch.org/whl/cu126",
            kind="install",
            needs=("network",),
        ),
    ),
    references=("https://www.anaconda.com/blog/a-faster-conda-for-a-growing-community",),
)
WIDER_RANGE = Fix(
    "In training: use bfloat16 on Ampere and newer GPUs; with float16 use GradScaler and compute the loss in float32"
)
PROBLEMS = (NOT_FASTER, RESERVED, COMPILED, STILL_REFERRED, CPU_ONLY, LOCKED, LARGER_BATCH, EVERY_GPU, EVALUATION, SOLVER)
