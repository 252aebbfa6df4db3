"""Problems that only the outputs in a text show. Pure."""

from __future__ import annotations

from gpudoctor.model import Action, Fix, Problem, Status

OTHER_PIP = Problem(
    id="pip-of-another-python",
    title="pip or a list of packages belongs to another Python",
    why="Each Python has its own packages. What the pip of one installs, another does not see: a package is missing although it "
    "is installed, or another release of it is imported.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Show which Python runs, and which one pip installs for",
            '<python> -c "import sys; print(sys.executable)"\n<python> -m pip --version',
            kind="read",
        ),
        Fix(
            "Install with the pip of the Python that runs", "<python> -m pip install <package>", kind="manual", needs=("network",)
        ),
        Fix("In a notebook: install into its own kernel", "%pip install <package>", syntax="notebook"),
    ),
    references=("https://pip.pypa.io/en/stable/user_guide/#running-pip",),
    status=Status.WARN,
)
MIXED_TOOLKITS = Problem(
    id="cmake-mixes-toolkits",
    title="CMake uses nvcc of one CUDA toolkit and libraries of another",
    why="CMake takes the first nvcc on PATH, and looks for the toolkit separately. Code compiled with the headers of one release "
    "and linked with the libraries of another fails to link or to run.",
    action=Action.FIX_CONFIG,
    fixes=(
        Fix(
            "Configure again in an empty folder, and name the compiler of the wanted toolkit",
            "cmake -S . -B build-cuda -DCMAKE_CUDA_COMPILER=<compiler>",
            kind="manual",
        ),
        Fix("Show which nvcc the shell starts", "command -v nvcc && nvcc --version", kind="read"),
    ),
    references=("https://cmake.org/cmake/help/latest/module/FindCUDAToolkit.html",),
    status=Status.WARN,
)
LEFTOVER = Problem(
    id="gpu-held-by-leftover-process",
    title="A process that nvidia-smi does not list holds GPU memory",
    why="Workers whose parent was killed keep running, or a process is outside of this container. GPU memory is freed when the "
    "last process that has it open ends.",
    action=Action.RESTART_APP,
    fixes=(
        Fix("Show what these processes are", "ps -o pid,ppid,user,stat,etime,args -p <pids>", kind="read"),
        Fix(
            "End those that are left over; kill -9 ends one that does not react",
            "kill <leftover>",
            risk="disruptive",
            verify="nvidia-smi",
        ),
    ),
    references=("https://github.com/pytorch/pytorch/issues/4031",),
    status=Status.WARN,
)
