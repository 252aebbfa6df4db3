"""What engines, NVIDIA's toolkit and its hooks say when a GPU cannot be brought into a container. Pure."""

from __future__ import annotations

from gpudoctor.judging.containers import causes, driver_errors
from gpudoctor.judging.containers import hook_errors as hooks
from gpudoctor.judging.containers import request_errors as requests
from gpudoctor.judging.containers.access import HOST_DRIVER, LOST, SELINUX
from gpudoctor.judging.containers.causes import Case
from gpudoctor.judging.containers.cdi import OFF, OLD_ENGINE, STALE
from gpudoctor.judging.containers.engines import UNREACHABLE
from gpudoctor.judging.containers.gpu_problems import (
    DRIVER_IN_IMAGE,
    LDCONFIG,
    LIBRARIES,
    NO_SUCH_GPU,
    NOT_SELECTED,
    REQUIRES,
    UNRESOLVABLE,
)
from gpudoctor.judging.containers.runtime import NO_HOOK, NOT_CONFIGURED, PROGRAM_MISSING
from gpudoctor.judging.containers.toolkit import HOOK_REFUSED, OLD_LIBRARY, ROOTLESS
from gpudoctor.judging.containers.words import BY_HOST, Message
from gpudoctor.model import Cause, Confidence, Finding

LIKELY, UNKNOWN = Confidence.LIKELY, Confidence.UNKNOWN
SHUT_OFF = (causes.DESKTOP, causes.SNAP)
CLI = r"nvidia-container-cli(?:\.real)?: "
MISSING = r"(?:no such file|executable file not found|stat \S+ no such file)"
# Files that a specification lists, and that nobody else mounts.
OF_DRIVER = (
    r"(?:lib(?:cuda|cudadebugger|nvidia-|nvcuvid|nvoptix|EGL_nvidia|GLX_nvidia|GLES\w*_nvidia|vdpau_nvidia|nvidia)[^/\"`\s]*"
    r"|nvidia-(?:smi|debugdump|persistenced|cuda-mps-\w+|modprobe)|\d+_nvidia\w*\.json|nvidia_\w+\.json|gsp_\w+\.bin|nvoptix\.bin"
    r"|nvidia-(?:persistenced|fabricmanager)/socket)"
)


def _rules(case: Case) -> Finding | None:
    """Of a Docker that runs as root the refusal comes from outside, not from being rootless."""
    if case.daemon.rootless:
        return None
    return hooks.RULES.found("Docker runs as root here", {"rootless": False}, confidence=LIKELY)


RULES = Cause(hooks.RULES, _rules)
# Which say nothing of the driver, however the machine's own checks end.
NOT_OF_DRIVER = (driver_errors.BUSY, driver_errors.PRIVILEGE)

OF_REQUESTS = (
    Message(
        r'could not select device driver "(?:nvidia)?" with capabilities: \[\[[^\]]*\bgpu\b',
        NOT_SELECTED,
        "{said}",
        (
            *SHUT_OFF,
            *(causes.DRIVER, causes.NO_PROGRAM, causes.NO_TOOLKIT, causes.NOT_REGISTERED, causes.NO_HOOK, causes.HOOK_LATE),
        ),
        UNKNOWN,
        causes.NO_TOOLKIT,
    ),
    Message(r'could not select device driver "cdi"', OFF, "{said}", (*SHUT_OFF, causes.OLD_ENGINE, causes.CDI_OFF), LIKELY),
    Message(r"cannot set both Count and DeviceIDs", requests.QUOTING),
    Message(r"no known GPU vendor found", requests.NO_VENDOR, "{said}", (causes.DRIVER, causes.NO_TOOLKIT)),
    Message(r"insufficient privileges to read device list from NVIDIA_VISIBLE_DEVICES", requests.REFUSED_VARIABLE),
    Message(
        r'(?:exec:? "|executable file `|exec )(?P<name>(?:/\S*/)?nvidia-smi)["`:]*(?: not found|: (?:executable file|stat|no '
        r"such))",
        requests.NO_SMI,
        "nvidia-smi is not in the container",
        sure=LIKELY,
    ),
    Message(
        r'stat nvidia\.com/\w+=\S*: no such file|custom device "nvidia\.com/[^"]*": no such file'
        r"|nvidia\.com/\w+=\S* is not an absolute path",  # Docker's own command before 25
        OLD_ENGINE,
        "{engine} takes nvidia.com/gpu for a file",
        sure=LIKELY,
    ),
    Message(
        r"unresolvable CDI devices [^\n]*runtime\.nvidia\.com/|failed to generate (?:automatic )?CDI spec",
        requests.AUTOMATIC,
        "{said}",
        (causes.DRIVER,),
        LIKELY,
    ),
    Message(
        r"unresolvable CDI devices",
        UNRESOLVABLE,
        "{said}",
        (
            *(causes.DRIVER, causes.NO_SPECIFICATION, causes.TOO_NEW, causes.CONFLICT, causes.STALE, causes.MISNAMED),
            causes.OLD_ENGINE,
        ),
        UNKNOWN,
    ),
    Message(
        r'failed to stat CDI host device "(?P<name>[^"]+)"'
        rf'|error mounting "(?P<path>/[^"]*{OF_DRIVER})" to .*no such file'
        rf"|(?:error stat'ing file |cannot stat `)(?P<stat>/\S*{OF_DRIVER})`?: No such file",
        STALE,
        "the specification names {name}, which is not there",
        (causes.DRIVER,),
    ),
    Message(
        r"fork/exec (?P<name>/\S*nvidia-(?:cdi-hook|ctk)): no such file"
        r"|error executing hook `(?P<hook>/\S*nvidia-(?:cdi-hook|ctk))` \(exit code: 127\)",
        requests.NO_CDI_HOOK,
        "the specification names {name}, which is not there",
    ),
    Message(
        r"error executing hook `(?P<name>/\S*nvidia-(?:cdi-hook|ctk))`",
        requests.HOOK_FAILED,
        "{name} failed",
        (causes.DRIVER, causes.STALE),
        LIKELY,
    ),
    Message(
        r"(?:Unknown runtime specified|unknown or invalid runtime name:) nvidia\b|OCI runtime \"nvidia\" not found",
        NOT_CONFIGURED,
        "{said}",
        (*SHUT_OFF, causes.DAEMON_JSON, causes.DRIVER, causes.NO_TOOLKIT, causes.NOT_REGISTERED),
    ),
)
OF_HOOKS = (
    Message(
        rf'{BY_HOST}(?:fork/exec |exec:? ")(?P<name>\S*nvidia-container-runtime)"?: {MISSING}',
        PROGRAM_MISSING,
        "{name} is not where the daemon looks for it",
        (causes.NO_PROGRAM,),
    ),
    Message(
        rf'{BY_HOST}(?:fork/exec |exec:? "|inject NVIDIA hook: stat )(?P<name>\S*nvidia-container-(?:runtime-hook'
        rf'|toolkit))"?: {MISSING}'
        r"|error executing hook `(?P<hook>/\S*nvidia-container-(?:runtime-hook|toolkit))` \(exit code: 127\)",
        NO_HOOK,
        "{name} is not there",
    ),
    Message(
        r"couldn\'t find binary nvidia-container-cli|" + BY_HOST + r'exec: "(?:\S*/)?nvidia-container-cli": exec', hooks.NO_CLI
    ),
    Message(r"nvidia-container-cli: error while loading shared libraries: (?P<name>libnvidia-container\S*):", hooks.NO_LIBRARY),
    Message(r"No help topic for '(?:prestart|createContainer|createRuntime)'", hooks.WRONG_HOOK),
    Message(r"could not decode OCI spec: ", hooks.OLD_DOCKER),
    Message(r"Error updating ldcache: .*pivot_root", hooks.PIVOT, sure=LIKELY),
    Message(
        r"failed to create link .*unexpected link target",
        hooks.KNOWN_FAULT,
        "version 1.17.1 and later of the toolkit do not say it",
    ),
    Message(
        CLI + r"mount error: stat failed: /(?!dev/|proc/|sys/|usr/|run/|lib|var/|etc/)[A-Za-z]+: no such file",
        hooks.KNOWN_FAULT,
        "version 1.0.2 and later of libnvidia-container do not say it",
        sure=LIKELY,
    ),
    Message(
        r"load library failed: (?P<name>lib(?:nvidia-ml|cuda)\S*?):",
        LIBRARIES,
        "the toolkit cannot load {name}",
        (*SHUT_OFF, causes.DRIVER, causes.WRONG_ROOT),
    ),
    Message(r"nvml error: driver not loaded", HOST_DRIVER, "{said}", (causes.DRIVER,)),
    Message(r"requirement error: invalid expression", requests.UNREADABLE, sure=LIKELY),
    Message(r"requirement error: |unsatisfied condition: ", REQUIRES, "the image wants {condition}; {driver}"),
    Message(r"/sys/fs/cgroup/devices/user\.slice/\S*devices\.allow: permission denied", ROOTLESS),
    Message(r"failed to add device rules: .*load program: invalid argument", hooks.FILTER),
    Message(
        r"failed to add device rules: .*(?:not permitted|permission denied)|devices\.allow: (?:permission|operation) ",
        ROOTLESS,
        "{said}",
        (RULES,),
        LIKELY,
    ),
    Message(r"failed to add device rules", hooks.FILTER, sure=LIKELY),
    Message(r"failed to get device cgroup mount path|cgroup subsystem devices not found", OLD_LIBRARY),
    Message(r"mode as 'csv'.*invoking the NVIDIA Container Runtime Hook directly", hooks.CSV),
    Message(r"mode (?:as )?'cdi'.*invoking the NVIDIA Container Runtime Hook directly", HOOK_REFUSED),
    Message(r"invoking the NVIDIA Container Runtime Hook directly", HOOK_REFUSED, sure=LIKELY),
    Message(
        r"device error: (?:unknown device id: )?(?P<name>[\w.:-]+?)(?:: unknown device|\\|\s|$)",
        NO_SUCH_GPU,
        "there is no GPU {name}",
        (causes.DRIVER,),
    ),
    Message(r"file creation failed: \S*/run/nvidia\S*/socket: no such device or address", hooks.RUN_MOUNTED, sure=LIKELY),
    Message(r"file creation failed: (?P<name>\S+): file exists", DRIVER_IN_IMAGE, "{file} is in {image} already"),
    Message(r"ldcache error: process \S+ terminated with signal 31", hooks.LDCONFIG_SECCOMP, sure=LIKELY),
    Message(r"ldcache error: process \S+ terminated with signal", hooks.LDCONFIG_KILLED, sure=LIKELY),
    Message(r"ldcache error: process \S+ failed with error code", hooks.LDCONFIG_FAILED, sure=LIKELY),
    Message(r"ldcache error: (?:open failed: |\S+ failed: )?(?P<name>/\S*ldconfig\S*): no such file", LDCONFIG),
    Message(r"ldcache error: ", LDCONFIG, sure=LIKELY),
    Message(r'(?:stat failed: |custom device "|^l?stat )/dev/nvidia-modeset"?: ', hooks.MODESET),
    Message(
        r'(?:stat failed: |custom device "|^l?stat )(?P<name>/dev/nvidia-uvm(?:-tools)?)"?: ',
        hooks.UVM,
        "{name} is not there",
        (causes.DRIVER,),
    ),
    Message(
        r'(?:custom device "|^l?stat |stat failed: )(?P<name>/dev/(?:nvidia[\w-]*|dxg))"?: (?:lstat \S+: )?no such file',
        NO_SUCH_GPU,
        "there is no {name} where the daemon runs",
        (causes.DRIVER,),
    ),
)
OF_DRIVERS = tuple(
    message if message.problem in NOT_OF_DRIVER else message._replace(causes=(*SHUT_OFF, causes.DRIVER))
    for message in driver_errors.MESSAGES
)
GPU = (
    *OF_REQUESTS,
    *OF_HOOKS,
    *OF_DRIVERS,
    Message(r"^Failed to initialize NVML: Unknown Error", LOST, "{said}", (causes.DRIVER,), LIKELY),
    Message(r"^Failed to initialize NVML: Insufficient Permissions", SELINUX, sure=LIKELY),
    Message(
        r"(?i)cannot connect to the docker daemon|error during connect|failed to connect to the docker api",
        UNREACHABLE,
        "{said}",
        (causes.CONTEXT, causes.DAEMON_JSON, causes.DEAD),
    ),
)
