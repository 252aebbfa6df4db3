"""Forms of names, and of what stands beside one."""

from __future__ import annotations

HOST = r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)"
NAME = r"([A-Za-z0-9_][\w.-]*\w)"
OBJECT = r"([a-z0-9][\w.-]*\w)"
QUOTE = r"\\{0,3}[\"']"  # also in JSON that is in JSON
SET = rf"(?:{QUOTE})?\s*[:=]\s*(?:{QUOTE})?"
# After "user: " mostly comes a sentence; after "user=" a name.
ALONE = (
    rf"(?:(?:{QUOTE})?=(?:{QUOTE})?|(?:{QUOTE})?:\s*{QUOTE}(?=[^\"'\n]*[\"'])"
    r"|[\"']?\s*:\s*(?=[\w.-]+(?:$|[,;)\]}]|\s*$|\s{2,}| \())"
    rf"|\s+=\s+(?:{QUOTE})?(?=[\w.-]+[\"']?\s*$)|(?:\*\*|\.{{2,}})?:\s+`?(?=[\w.-]+`?$)"
    r"|\s+\|\s+(?=[\w.-]+(?:\s+\||$))|(?:\t|\s{2,})(?=[\w.-]+$))"
)
DAY = (
    r"(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{3,4}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
ENGINE = r"\b(?:docker|podman|nerdctl)\b"

SEVERAL_HOSTS = r"([A-Za-z][\w.-]*(?::\d+)?(?:,[A-Za-z][\w.-]*(?::\d+)?)*)"  # each is replaced
LISTING = r"^[-dlcbps][rwxsStT-]{9}[.+@]?\s+\d+"
KUBE_ROW = (
    r"(?=\s+\d+/\d+\s+(?:Running|Pending|Error|Completed|Terminating|Unknown|\w*BackOff|ContainerCreating|Init:\S+|Evicted"
    r"|OOMKilled))"
)
QUEUE_HEAD = r"(?m)^[ \t]+(?:job-)?\d+(?:_\d+)?\s+"
QUEUE_ROW = r"(?=\s+(?:R|PD|CG|CD|CF|F|ST?|TO|NF)\s+[\d:-]+\s+\d+\s)"
