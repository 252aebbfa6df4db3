"""Proofs as findings: what decides, and how to change it for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.facts.command import QUESTION
from gpudoctor.facts.guarded import WRONG
from gpudoctor.facts.known import known
from gpudoctor.fixes.common import PROCESSOR, look
from gpudoctor.fixes.limits import BY_NAME
from gpudoctor.judging.experiments import telling
from gpudoctor.judging.experiments.change import change
from gpudoctor.judging.experiments.proof import ELSEWHERE, UNSTEADY, Proof
from gpudoctor.judging.experiments.suspect import (
    AFFINITY,
    CURRENT_FOLDER,
    ENTRY,
    FOLDER,
    GPU,
    LIMIT,
    PATH_OF_GPUS,
    SETTING,
    USER_SITE,
    VARIABLE,
    Surroundings,
    Suspect,
)
from gpudoctor.model import Action, Confidence, Finding, Fix, Problem, Status

VISIBLE = "CUDA_VISIBLE_DEVICES"
REFERENCE = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
PYTHON_VARIABLES = {USER_SITE: "PYTHONNOUSERSITE", CURRENT_FOLDER: "PYTHONSAFEPATH"}
LIMITS = "https://man7.org/linux/man-pages/man2/getrlimit.2.html"
PYTHON = "https://docs.python.org/3/using/cmdline.html#environment-variables"

IN_CONTAINER = Fix(
    "In a container: remove it from the Dockerfile's ENV, the compose file, or -e of docker run", on=("container",)
)
DELETE = look("To fix it permanently: find the line that sets it, and delete it", "grep -n <variable> <file>")
FIND = look(
    "To fix it permanently: find the line that sets it, and delete it",
    "grep -sn <variable> ~/.bashrc ~/.profile ~/.zshrc /etc/environment /etc/profile.d/*.sh || echo 'in none of these files'",
    on=("host", "wsl2"),
)
IN_CONDA = Fix("In a conda environment: unset it", "conda env config vars unset <variable>", on=("conda",), kind="install")


WITHOUT_FILE = {"start of the container": IN_CONTAINER, "conda env config vars": IN_CONDA}


def _problem(id: str, what: str, why: str, *fixes: Fix, reference: str = REFERENCE) -> Problem:
    return Problem(id, f"{what} makes programs fail", why, Action.FIX_CONFIG, fixes, (reference,))


GO_ON = Fix(
    "Run the search again with more repeats (why --attempts, check --experiment-timeout): it then names the one that decides"
)
UNSET = Fix("In this shell: unset it, then restart the program", "unset <variable>", where="shell")
BY_VARIABLE = _problem(
    "variable-breaks-programs",
    "An environment variable",
    "The same program was run with the variable and without it, and nothing else was different. The variable decides.",
    UNSET,
    FIND,
    IN_CONTAINER,
    IN_CONDA,
)
REMOVE = Fix("In this shell: remove the entry, then restart the program", "export <variable>=<without_it>", where="shell")
BY_ENTRY = _problem(
    "search-path-breaks-programs",
    "A folder or library in a search path",
    "The same program was run with the entry and without it. Programs find a library, package or compiler there that does not "
    "fit the others.",
    REMOVE,
    FIND,
    IN_CONTAINER,
    reference="https://man7.org/linux/man-pages/man8/ld.so.8.html",
)
BY_FOLDER_OF_PYTHON = _problem(
    "python-folder-breaks-programs",
    "A folder that Python searches first",
    "Files in this folder hide packages of the environment. The same program works if Python does not search it.",
    look("Show what lies in it", "ls -la <folder>"),
    Fix("Rename or remove what hides a package there"),
    Fix("In this shell: tell Python not to search it, then restart the program", "export <variable>=1", where="shell"),
    reference=PYTHON,
)
RAISE = Fix("In this shell: raise the limit, then restart the program", "ulimit -n <possible>", where="shell")
BY_LIMIT = _problem(
    "limit-breaks-programs",
    "A resource limit",
    "The same program was run with the limit and with a higher one. The limit decides.",
    RAISE,
    Fix("To raise it permanently: raise it where the program is started (login, systemd unit, Slurm, container)"),
    reference=LIMITS,
)
BY_FOLDER = _problem(
    "folder-breaks-programs",
    "A folder for temporary or cached files",
    "The same program was run with this folder and with a fresh one. The folder is full, not writable or mounted noexec, or it "
    "contains stale files, such as a lock left by a build that was killed.",
    Fix(
        "Use another folder, then restart the program",
        'export <variable>="$(mktemp -d -p "$HOME")"',
        where="shell",
    ),
    look("Show its owner, its room and its mount", "ls -ld <folder>; df -h <folder>; df -i <folder>; findmnt -T <folder>"),
    Fix("If it is a cache and nothing is running: empty it; it is filled again", risk="destructive"),
    reference="https://man7.org/linux/man-pages/man3/errno.3.html",
)
BY_AFFINITY = _problem(
    "cpu-affinity-breaks-programs",
    "CPU affinity",
    "The same program was run on these CPU cores and on all. With so few cores its threads wait for each other.",
    PROCESSOR,
    Fix("Use all CPU cores in this shell, then restart the program", "taskset -pc 0-<last> $$", where="shell"),
    Fix("In a job or a container: request more CPU cores"),
    reference="https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html",
)
BY_GPU = _problem(
    "gpu-breaks-programs",
    "One GPU of several",
    "The same program was run with this GPU and without it. Only with it the program fails.",
    Fix("Leave it out until it is repaired", "export CUDA_VISIBLE_DEVICES=<without_it>", where="shell"),
)
BY_SETTING = _problem(
    "missing-variable-breaks-programs",
    "A missing or different variable",
    "The same program was run with the variable as it is on the machine where it works, and nothing else was different. The "
    "variable decides.",
    Fix("In this shell: set it as there, then restart the program", "export <variable>=<value>", where="shell"),
    Fix("To fix it permanently: set it in the job script or in ~/.profile", on=("host", "wsl2")),
    Fix("In a container: set it with ENV in the Dockerfile, in the compose file, or with -e of docker run", on=("container",)),
)
BY_PATH = _problem(
    "gpu-path-breaks-programs",
    "A path between GPUs",
    "The same program was run with this path and without it. Only with it the program fails: transfers over it are refused, hang "
    "or damage data, as with an IOMMU or ACS between the GPUs.",
    Fix("Until it is repaired: leave the path out (slower)", "export <variable>=1", where="shell"),
    look("Show how the GPUs are connected", "nvidia-smi topo -m; nvidia-smi topo -p2p r"),
    Fix(
        "Measure the transfers between the GPUs",
        "gpudoctor check --only peer-access,peer-transfers,iommu-acs,nvlink",
        kind="read",
    ),
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
PROBLEMS = {
    VARIABLE: BY_VARIABLE,
    ENTRY: BY_ENTRY,
    USER_SITE: BY_FOLDER_OF_PYTHON,
    CURRENT_FOLDER: BY_FOLDER_OF_PYTHON,
    LIMIT: BY_LIMIT,
    FOLDER: BY_FOLDER,
    AFFINITY: BY_AFFINITY,
    GPU: BY_GPU,
    SETTING: BY_SETTING,
    PATH_OF_GPUS: BY_PATH,
}
ALL = tuple(dict.fromkeys(PROBLEMS.values()))
IDS = tuple(problem.id for problem in ALL)
ABOUT = {"open-files": "open_files", "memlock": "memlock", "temporary-space": "TMPDIR", "cpu-affinity": "affinity"}
"""Checks whose findings are about one suspect."""
LAST_RESORTS = ("measurement-", "framework-import-")  # findings that name no cause


def proofs(facts: Facts) -> Iterator[Proof]:
    """The proofs in a snapshot; what is none is left out."""
    for reply in facts.experiments.values():
        try:
            yield Proof.from_value(reply.value)
        except WRONG:
            continue


def findings(facts: Facts) -> Iterator[Finding]:
    """One for each set of guilty: several subjects can share it."""
    told: dict[tuple[tuple[str, str, str], ...], list[Proof]] = {}
    for proof in proofs(facts):
        if proof.guilty:
            told.setdefault(tuple((one.kind, one.name, one.value) for one in proof.guilty), []).append(proof)
    for alike in told.values():
        yield found(alike, facts)


def of_command(facts: Facts) -> Iterator[Finding]:
    """What decides whether the user's command works (gpudoctor why)."""
    return (found([proof], facts) for proof in proofs(facts) if proof.subject == QUESTION and proof.guilty)


def found(alike: list[Proof], facts: Facts) -> Finding:
    """The finding of proofs with the same guilty; the surest comes first."""
    first, *rest = sorted(alike, key=lambda proof: not proof.is_confirmed)
    set_in = known(lambda: facts.environment.set_in(first.guilty[0].name), ())
    evidence = values(first.guilty, set_in, facts)
    others = [id for proof in rest for id in (proof.subject, *proof.also)] + list(first.also)
    message = telling.sentence(first, set_in) + "".join(f", also {telling.subject(id)}" for id in others)
    evidence |= {"runs": telling.runs(first), "subjects": sorted({first.subject, *others})}
    confidence = Confidence.CONFIRMED if first.is_confirmed else Confidence.LIKELY
    return problem_of(first, evidence).found(message, evidence, confidence=confidence)


def problem_of(proof: Proof, evidence: Mapping[str, Any]) -> Problem:
    """The problem that the first of the guilty is, with the fixes for this evidence."""
    problem = PROBLEMS[proof.guilty[0].kind]
    if proof.failing.worked:
        problem = replace(problem, title=problem.title.removesuffix("fail") + "slow", status=Status.WARN)
    if len(proof.guilty) > telling.MOST_GUILTY:
        return replace(problem, fixes=(GO_ON,))
    if "limit" in evidence:
        limit = BY_NAME[str(evidence["limit"])]
        return replace(problem, fixes=(limit.in_shell, *limit.ways))
    instead = {FIND: DELETE} if "file" in evidence else {}
    if evidence.get("without_it") == "":
        instead[REMOVE] = UNSET
    places = evidence.get("set_in") or ()
    first = [fix for place, fix in WITHOUT_FILE.items() if place in places and fix in problem.fixes]
    fixes = (*first, *(instead.get(fix, fix) for fix in problem.fixes if fix not in first))
    return replace(problem, fixes=fixes)


def gpus(facts: Facts) -> tuple[str, ...]:
    """The GPUs that a program sees, as CUDA_VISIBLE_DEVICES names them."""
    named = known(lambda: facts.environment.get(VISIBLE))
    if named:
        return tuple(entry.strip() for entry in named.split(",") if entry.strip())
    return tuple(map(str, range(known(lambda: facts.cuda.count) or 0)))


def values(guilty: tuple[Suspect, ...], set_in: tuple[str, ...], facts: Facts) -> dict[str, Any]:
    """The evidence that fixes need. set_in: where the first of the guilty is set: "/root/.bashrc:12"."""
    one = guilty[0]
    files = [place.rpartition(":")[0] for place in set_in if place.startswith("/")]
    evidence: dict[str, Any] = {"variable": one.name, "value": one.value}
    if one.kind == ENTRY:
        here = Surroundings(known(lambda: facts.environment.variables, {}))
        evidence["without_it"] = change(guilty, here).put.get(one.name, "")
    elif one.kind == GPU:
        here = Surroundings(known(lambda: facts.environment.variables, {}), gpus=gpus(facts))
        evidence["without_it"] = change(guilty, here).put.get(VISIBLE, "")
    elif one.kind == LIMIT:
        evidence = {"limit": one.name, "value": one.value, "possible": "hard"}
    elif one.kind in (USER_SITE, CURRENT_FOLDER):
        evidence = {"folder": one.value, "variable": PYTHON_VARIABLES[one.kind]}
    elif one.kind == FOLDER:
        evidence = {"variable": one.name, "folder": one.value}
    elif one.kind == AFFINITY:
        evidence = {"cores": one.value, "last": known(lambda: facts.limits.cpu_count - 1)}
    return evidence | ({"set_in": list(set_in)} if set_in else {}) | ({"file": files[0]} if files else {})


def with_cause(finding: Finding, facts: Facts, check: str) -> Finding:
    """A finding that a proof explains, with that problem as its first cause; with what was tried, if nothing was found."""
    if finding.problem.id in IDS or not facts.experiments:
        return finding
    for proof in proofs(facts):
        if not is_about(finding, proof, check):
            continue
        if proof.guilty:
            return replace(finding, causes=(PROBLEMS[proof.guilty[0].kind].id, *finding.causes))
        if proof.verdict in (ELSEWHERE, UNSTEADY) and finding.problem.id.startswith(LAST_RESORTS) and not finding.causes:
            evidence = {**finding.evidence, "tried": telling.tried(proof), "ruled_out": list(map(str, proof.ruled_out))}
            return replace(finding, evidence=evidence, confidence=Confidence.UNKNOWN)
    return finding


def is_about(finding: Finding, proof: Proof, check: str) -> bool:
    """Whether the finding of a check is a failure that the proof explains, or is about one of its guilty."""
    named = {ABOUT.get(check, ""), *(str(finding.evidence.get(key, "")) for key in ("variable", "framework", "workload"))} - {""}
    if any(suspect.name in named for suspect in proof.guilty):
        return True
    subjects = {proof.subject, *proof.also}
    imported = {id.removeprefix("import:") for id in subjects if id.startswith("import:")}
    words = finding.message.replace(":", " ").replace(",", " ").split()
    ran = {id.rpartition(":")[0] for id in subjects} - {"import"}
    return bool(imported & named) or bool(ran & {*words, *named})
