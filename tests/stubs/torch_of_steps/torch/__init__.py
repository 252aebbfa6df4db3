"""As much of torch as a training loop and the tracer of `gpudoctor profile` touch. Its GPU is a clock."""
# mypy: ignore-errors

import types

__version__ = "2.11.0"
version = types.SimpleNamespace(cuda="13.0")
_C = types.SimpleNamespace(_profiler=types.SimpleNamespace(RecordScope=types.SimpleNamespace(USER_SCOPE="user")))
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=False)),
    cudnn=types.SimpleNamespace(allow_tf32=True, benchmark=False),
)

from torch import amp, autograd, cuda, optim  # noqa: E402, F401
