"""What stands beside a name and so gives it away: in logs, tables and command lines, of hosts, users, jobs, pods, containers."""

from __future__ import annotations

import re

_HOST = r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)"
_NAME = r"([A-Za-z0-9_][\w.-]*\w)"
_OBJECT = r"([a-z0-9][\w.-]*\w)"
_QUOTE = r"\\{0,3}[\"']"  # also in JSON that is in JSON
_SET = rf"(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?"
# After "user: " mostly comes a sentence; after "user=" a name.
_ALONE = (
    rf"(?:(?:{_QUOTE})?=(?:{_QUOTE})?|(?:{_QUOTE})?:\s*{_QUOTE}(?=[^\"'\n]*[\"'])"
    r"|[\"']?\s*:\s*(?=[\w.-]+(?:$|[,;)\]}]|\s*$|\s{2,}| \()))"
)
_DAY = r"(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
_ENGINE = r"\b(?:docker|podman|nerdctl)\b"

_HOSTS = r"([A-Za-z][\w.-]*(?::\d+)?(?:,[A-Za-z][\w.-]*(?::\d+)?)*)"  # each is replaced
_LISTING = r"^[-dlcbps][rwxsStT-]{9}[.+@]?\s+\d+"
_KUBE_ROW = (
    r"(?=\s+\d+/\d+\s+(?:Running|Pending|Error|Completed|Terminating|Unknown|\w*BackOff|ContainerCreating|Init:\S+|Evicted"
    r"|OOMKilled))"
)
_QUEUE_HEAD = r"(?m)^[ \t]+(?:job-)?\d+(?:_\d+)?\s+"
_QUEUE_ROW = r"(?=\s+(?:R|PD|CG|CD|CF|F|ST?|TO|NF)\s+[\d:-]+\s+\d+\s)"

# Word of the token; in lower case what a text must have; a pattern, in which the name is the only group that matched.
PATTERNS: tuple[tuple[str, str, str], ...] = (
    # Logs of a system, of NCCL, of Slurm, of sockets.
    ("host", ": ", rf"^{_DAY} {_HOST} [\w./()@-]+(?:\[\d+\])?: "),
    ("host", "kernel: ", rf"^\[\s*\d+\.\d+\] {_HOST} kernel: "),
    ("host", " [", rf"(?<![\w./:-]){_HOST}:\d+:\d+ \[-?\d*\] "),
    ("host", "srun: ", rf"\bsrun: error: {_HOST}: "),
    ("host", " on ", rf"\bON {_HOST} (?:CANCELLED|FAILED)|\b[Oo]n node [\"']?{_HOST}(?=[\s\"':,]|$)"),
    ("host", "linux ", rf"\bLinux {_HOST} \d+\.\d+\S* #\d"),
    (
        "host",
        "name",
        rf"(?i)(?<![a-z])(?:host_?name|static hostname|nodename|slurmd_nodename){_SET}{_HOST}|--hostname[ =]{_HOST}",
    ),
    ("host", "nodelist", rf"(?i)(?<![a-z])node_?list[= :]\s*[\"']?{_HOSTS}"),
    ("host", "addr", rf"(?i)(?<![a-z])master[-_]addr(?:=|\s*:\s*|\s)[\"']?{_HOST}"),
    ("host", "endpoint", rf"(?i)(?<![a-z])(?:rdzv[-_])?endpoint[ =:]\s*[\"']?(?=[\w.-]+:\d){_HOST}"),
    ("host", "host", rf"(?i)(?<![\w.-])host{_ALONE}{_HOST}(?=[\s\"',;)\]:\\]|$)"),
    ("host", "(", rf"(?:\bto|\bat|IP) \((?=[A-Za-z]){_HOST}, \d{{4,5}}\)"),
    ("host", "]:", rf"\[(?=[A-Za-z]){_HOST}\]:\d{{2,5}}"),
    ("host", "host", rf"(?i)\b(?:to host|resolve host(?:name)?:?) [\"']?{_HOST}(?=[\s\"':,]|$)"),
    ("host", "lookup ", rf"\blookup [\"']?{_HOST}(?=[\s\"':,]|$)"),
    ("host", "signer:", rf"(?m)\bsigner:\s+{_HOST}(?=[- ](?:Secure Boot Module Signature key|\d+$))"),
    ("host", "***", rf"\[{_HOST}:\d{{3,7}}\](?= \*\*\*)"),
    ("host", "][[", rf"\[{_HOST}\](?=\[\[\d+,\d+\],\d+\])"),
    ("host", "-h", rf"\b(?:mpi(?:run|exec)|horovodrun)\b[^|\n]{{0,400}}? (?:-H|--?hosts?)[ =]{_HOSTS}(?= |$)"),
    ("host", " -w", rf"(?:#SBATCH|\b(?:srun|sbatch|salloc)\b[^|\n]{{0,400}}?) -w[ =]{_HOST}"),
    ("host", "_host", rf"\b[A-Z][A-Z_]*_HOSTS?\s?[=:]\s?[\"']?(?![\w.-]*:/){_HOSTS}"),
    ("host", "node", rf"(?i)(?<![a-z])node_?name{_SET}{_HOST}|(?m:^Node:)\s+{_HOST}(?=/)|\bon node: {_HOST}"),
    ("host", "assigned", rf"\bassigned \S+ to {_HOST}"),
    ("host", "proxyjump", rf"(?im)^\s*ProxyJump\s+(?:\S+@)?{_HOST}"),
    ("host", "name", rf"(?im)^\s*HostName\s+{_HOST}\s*$"),
    ("host", " ssh-", rf"(?m)^{_HOST}(?=(?:,\S+)? (?:ssh-|ecdsa-))"),
    ("host", "127.0.1.1", rf"^127\.0\.1\.1\s+{_HOST}"),
    ("host", "search", r"(?m)^(?:search|domain)[ \t]+((?:[\w-]+\.[\w.-]+[ \t]*)+)$"),
    ("host", ":/", rf"(?<![\w./:@-]){_HOST}(?=:/\S* (?:on )?/\S* (?:type )?(?:nfs|ceph|lustre|gluster|beegfs|cifs))"),
    ("host", ":/", rf"\b(?:scp|rsync)\b[^|\n]{{0,400}} {_HOST}(?=:[/~])"),
    ("host", "ip-", r"(?<![\w-])(ip-\d{1,3}(?:-\d{1,3}){3})(?!\w)"),
    ("host", '"', rf"\"{_HOST}(?= (?:HCA-\d|mlx\d_\d)\")"),
    ("host", ":", rf"^{_HOST}(?=\s+[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \d{{4}}\s+\d+\.\d+)"),
    ("host", "nfs: ", rf"\bnfs: server {_HOST} (?=not responding|OK)"),
    ("host", "hostname", rf"\b[Hh]ostname (?:set )?to <{_HOST}>"),
    ("host", "ip=", rf"\bip=[^\s:]*(?::[^\s:]*){{3}}:{_HOST}(?=:)"),
    ("host", "added", rf"\bPermanently added '{_HOST}"),
    ("host", "address", rf"--address[= ][\"']?{_HOST}(?=:\d)"),
    ("host", "ssh ", rf"(?<=[$#] )ssh (?:-[A-Za-z](?: ?\S+)? )*{_HOST}(?= |$)"),
    ("host", "instances/", rf"/zones/[\w-]+/instances/{_HOST}"),
    ("host", "virtualmachines/", rf"(?i)/virtualMachines/{_HOST}"),
    ("host", ":", rf"{_QUEUE_HEAD}\S+\s+\S+\s+\S+\s+(?:R|CG|CD|CF|F|ST?|TO|NF)\s+[\d:-]+\s+\d+\s+{_HOST}"),
    ("user", "user", rf"(?i)(?<![a-z])(?:user_?name|sudo_user|user){_ALONE}{_NAME}(?=[\s\"',;)\]\\]|$)|\bfor user {_NAME}"),
    ("user", "log", rf"(?i)(?<![a-z])(?:logname|login){_ALONE}{_NAME}(?=[\s\"',;)\]\\]|$)"),
    ("user", "owner", rf"(?i)(?<![a-z])owner{_ALONE}{_NAME}(?=[\s\"',;)\]\\]|$)"),
    ("user", "su", rf"\bsudo:\s+{_NAME} : |\bsu: \(to \S+\) {_NAME}"),
    ("user", ":", rf"(?m)^{_NAME}:[x*!]:\d+:\d+:"),
    (
        "user",
        ":",
        r"(?m)^([a-z_][\w-]*\+?)(?=\s+\d+\s+(?:\d+\.\d\s+\d+\.\d\s+\d+\s+\d+\s|\d+\s+\d+\s+\S+\s+\S+\s+\d\d:\d\d:\d\d\s))",
    ),
    ("user", "id=", rf"\buid=\d+\({_NAME}\)|\bUserId={_NAME}\("),
    ("group", "id=", rf"(?<=[,=])\d+\({_NAME}\)|\bGroupId={_NAME}\("),
    ("user", " user ", rf"\b(?:Session \S+ of|session (?:\S+ of|opened for|closed for)|for invalid|for) [Uu]ser {_NAME}"),
    ("user", " for ", rf"\b(?:Accepted \S+|Failed \S+) for (?:invalid user )?(?!invalid ){_NAME}(?= from )"),
    ("user", "rw", rf"(?m){_LISTING} {_NAME}(?= )"),
    ("group", "rw", rf"(?m){_LISTING} \S+\s+{_NAME}(?=\s+\d)"),
    ("user", "pts/", rf"(?m)^{_NAME}(?=\s+pts/\d)"),
    ("user", ":x:", r"(?m)^[^:\s]+:x:\d+:\d+:([^:\n,]{3,})(?=[,:])"),
    ("group", ":x:", rf"(?m)^{_NAME}(?=:x:\d+:(?:[\w.-]+(?:,[\w.-]+)*)?$)"),
    ("user", "m)", rf"(?<=[| ]){_NAME}(?=\(\d+M\))"),
    ("user", "login", rf"{_ENGINE} login\b[^|\n]{{0,400}}? (?:-u|--username)[ =]{_NAME}"),
    ("user", "@", r"\b([A-Z][\w'.-]+(?: [A-Z][\w'.-]+){1,3})(?= <[^<>@\s]+@(?!nvidia\.com)[^<>\s]+>)"),
    ("user", "logged in", rf"(?i)\blogged in as:? {_NAME}"),
    ("account", "logged in", rf"(?i)\blogged in as:? \S+ \({_NAME}\)"),
    ("user", "dc=", r"(?i)\b(?:uid|cn)=([^,=\n]+)(?=,\s?(?:ou|dc|cn)=)"),
    ("domain", "dc=", r"(?i)\b(dc=[\w-]+(?:,dc=[\w-]+)+)"),
    ("user", "%2f", r"(?i)%2F(?:home|Users)%2F([^%/\s\"'&]+)"),
    ("user", "%40", r"(?<![\w.%-])([A-Za-z][\w.+-]*)(?=%40[\w-]+\.)"),
    ("user", "\\/", r"\\/(?:home|Users)\\/([^\\/\s\"']+)"),
    ("user", ":", rf"{_QUEUE_HEAD}\S+\s+\S+\s+{_NAME}{_QUEUE_ROW}"),
    ("dir", "onedrive - ", r"OneDrive - ([^/\\\n\"':;|<>]*[^/\\\n\"':;|<>\s])"),
    ("iface", " using ", r"\bUsing (?:\[\d+\])?([A-Za-z][\w.-]*)(?=:[\d.a-f:]+<)"),
    ("iface", "oob ", r"\bOOB ([A-Za-z][\w.-]*)(?=:[\d.a-f:]+<)"),
    # Kubernetes.
    ("account", "serviceaccount", rf"serviceAccount(?:Name)?{_SET}{_NAME}"),
    ("namespace", "namespace", rf"(?i)(?<![a-z])namespaces?(?:{_ALONE}|/|\s+[\"']){_OBJECT}"),
    ("namespace", "kubectl", r"\bkubectl\b[^|\n]{0,400}? (?:-n|--namespace)[ =]([\w-]+)"),
    ("namespace", "pod", r"\bpods?[ =]\"([a-z0-9][\w-]*)(?=/)"),
    ("pod", "pod", rf"(?i)(?<![a-z])pods?(?:[_ -]?name)?(?:{_ALONE}|/)(?:[\w-]+-\d+/)?{_OBJECT}"),
    ("pod", "pod", rf"(?i)(?<![a-z])pods? [\"'](?:[\w-]+/)?{_OBJECT}"),
    ("pod", "kubectl", rf"\bkubectl\b[^|\n]{{0,400}}? (?:pods?[ /]|(?:logs|exec|attach|cp) (?:-\S+ )*){_OBJECT}"),
    ("pod", "-", rf"(?m)^(?:[a-z0-9-]+\s+)?([a-z0-9][a-z0-9.-]*){_KUBE_ROW}"),
    ("namespace", "-", rf"(?m)^([a-z0-9-]+)(?=\s+[a-z0-9][a-z0-9.-]*{_KUBE_ROW})"),
    ("pod", "assigned", rf"\bassigned [\w-]+/{_OBJECT}"),
    ("namespace", "assigned", r"\bassigned ([\w-]+)(?=/)"),
    ("pod", "name:", r"(?m)^Name:\s+([a-z0-9][\w.-]*-[a-z0-9]{4,10}-[a-z0-9]{5}|[a-z0-9][\w.-]*-\d+)$"),
    # Slurm.
    ("job", "job", rf"(?i)(?<![a-z])(?:slurm_)?job_?name{_SET}{_NAME}|--job-name[ =]{_NAME}"),
    ("job", "slurm", r"(?i)(?<![a-z])slurm[-_](\d+)(?=\.out)|(?<![a-z])SLURM_JOB_?ID[=:]\s*(\d+)|/slurm\S*/(job_?\d+)"),
    ("job", "job", r"\b[Bb]atch job (\d+)|\b(?:JOB|StepId=|JobId=) ?(\d+)(?=[. ])|(?<![a-z])srun: job (\d+)"),
    ("job", "step", r"\b(?:STEP|StepId=) ?(\d+)(?=[. ])"),
    ("account", "account", rf"(?i)(?:--account[ =]|slurm_(?:job_)?account{_SET}){_NAME}"),
    ("account", "partition", rf"(?i)(?:--partition[ =]|slurm_(?:job_)?partition{_SET}){_NAME}"),
    ("account", "qos", rf"(?i)(?:--qos[ =]|slurm_(?:job_)?qos{_SET}){_NAME}"),
    ("job", "sbatch", r"#SBATCH -J (\S+)"),
    ("job", "jobid", r"--jobid[= ](\d+)"),
    ("job", ":", rf"{_QUEUE_HEAD}\S+\s+{_NAME}(?=\s+\S+{_QUEUE_ROW})"),
    ("account", ":", rf"{_QUEUE_HEAD}{_NAME}(?=\s+\S+\s+\S+{_QUEUE_ROW})"),
    ("job", ":", rf"^[ \t]+(\d{{3,}})(?:_\d+)?(?=\s+\S+\s+\S+\s+\S+{_QUEUE_ROW})"),
    ("account", "sbatch", rf"#SBATCH -[Apq] {_NAME}"),
    ("account", "account=", rf"(?<!\w)Account={_NAME}"),
    ("account", "resourcegroups", r"(?i)/resourceGroups/([\w.-]+)"),
    ("account", "projects/", r"(?<![\w/])projects/([\w-]+)(?=/(?:zones|locations|regions|global)/)"),
    # Engines.
    ("container", "container", rf"(?i)\bcontainer(?:[_ -]name)?(?:{_ALONE}|\s+[\"'])/?{_NAME}(?=[\\\"'\s,;:]|$)"),
    ("container", "--name", rf"{_ENGINE}[^|\n]{{0,400}}? --name[ =]{_NAME}"),
    ("container", "endpoint", rf"\bon endpoint {_NAME} \("),
    ("container", " ", rf"{_ENGINE} (?:exec|logs|start|stop|restart|attach|kill)(?: -\S+)* {_NAME}"),
    ("container", "name", rf"(?i)\bcontainer_?name{_SET}{_NAME}|\"Names?\":\s*\[?\s*\"/{_NAME}\""),
    ("container", "container: ", rf"\bNo such container: {_NAME}"),
    ("container", "compose", rf"com\.docker\.compose\.(?:project|service)(?:\.\w+)?{_SET}{_NAME}"),
    ("container", "compose", rf"\b(?:docker|podman)[ -]compose\b[^|\n]{{0,400}}? (?:-p|--project-name)[ =]{_NAME}"),
    (
        "container",
        "  ",
        rf"\b(?:Container|Network|Volume) \"?{_NAME}\"?(?=  (?:Creat|Start|Stopp|Recreat|Runn|Health|Error|Remov|Wait))",
    ),
    ("dir", "-v", rf"{_ENGINE}[^|\n]{{0,400}}? (?:-v|--volume)[ =]{_NAME}(?=:/)"),
    ("dir", "binds", rf"\"{_NAME}(?=:/[^\"]*\")"),
    ("image", "image", r"\"[Ii]mage\"\s*[:=]\s*\"([a-z0-9][\w./:@-]*)(?=\")|Unable to find image '([a-z0-9][\w./:@-]*)'"),
    ("image", "/", rf"{_ENGINE} (?:run|pull|create)\b[^|\n]{{0,400}}? ([a-z0-9][\w.-]*/[\w./-]*\w:[\w.-]+)(?= |$)"),
    ("container", '"', rf"(?m)^[0-9a-f]{{12}}\s{{2,}}\S+\s{{2,}}\"[^\n]*\s{{2,}}{_NAME}\s*$"),
    ("image", '"', r"(?m)^[0-9a-f]{12}\s{2,}([\w./:@-]+)(?=\s{2,}\")"),
    ("container", '"', r"(?m)^([0-9a-f]{12})(?=\s{2,}\S+\s{2,}\")"),
)
BESIDE = tuple((word, sign, re.compile(pattern, re.MULTILINE)) for word, sign, pattern in PATTERNS)
ARGUMENTS = (
    # ps -ef, ps aux, nvidia-smi -q and -x, what calls it so.
    re.compile(r"(?m)^(\S+\s+\d+\s+\d+\s+\d+\s+\S+\s+\S+\s+\d\d:\d\d:\d\d\s+\S+)([ \t]+\S.*)$"),
    re.compile(r"(?m)^(\S+\s+\d+\s+\d+\.\d\s+\d+\.\d\s+\d+\s+\d+\s+\S+\s+[A-Za-z]\S*\s+\S+\s+\d+:\d\d\s+\S+)([ \t]+\S.*)$"),
    re.compile(r"(?m)^(\s*Name\s+: \S*(?:python|bash|sh|perl|java|node|ruby)[\d.]*)( \S.*)$"),
    re.compile(r"(<process_name>[^<\s]+)( [^<]+)(?=</process_name>)"),
    re.compile(r"(?m)^(\|\s+\d+\s+\S+\s+\S+\s+\d+\s+[CGM+]+\s+\S+)( (?=\S)[^|\n]*\S)(?=\s+\d+MiB \|)"),
    re.compile(r"(?i)(\bcmd_?line[\"']?\s*[:=]\s*[\"']?[^\s\"',]+)([ ,][^\n]*)"),
)
