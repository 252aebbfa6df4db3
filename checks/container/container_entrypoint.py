"""The image's entrypoint runs the command that it is given.

What it means
An entrypoint prepares what a program needs (NVIDIA's enables forward compatibility) and then runs that program. If the
entrypoint exits first, no program can start in this image as it is.

How it is judged
gpudoctor starts its own command through the entrypoint (check --image). If the entrypoint exits first, gpudoctor examines the
image without it, and the entrypoint's output is the finding.

Known exceptions
An entrypoint that is itself a program, such as a server, is replaced from the start. What it would set is then not seen.

References
https://docs.docker.com/reference/dockerfile/#entrypoint
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.facts import Facts
from gpudoctor.model import Action, Check, Finding, Fix, Problem, Skip, Status

MOST_SAID = 300  # characters of what an entrypoint says

FAILED = Problem(
    id="image-entrypoint-ends",
    title="The image's entrypoint exits before it starts the given command",
    why="The entrypoint refused to start, or it treats the command as its own arguments. This report describes the image without "
    "the entrypoint, so what it would have set is missing here.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("Read its output to find what it needs (a variable, a licence, a mounted file)", "<docker> run --rm <image> true"),
        Fix("Start the image without the entrypoint", "<docker> run --rm -it --entrypoint sh <image>"),
    ),
    references=("https://docs.docker.com/reference/dockerfile/#entrypoint",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    start = of_image(facts)
    if said := start.get("entrypoint_failed"):
        words = " ".join(said.split())[:MOST_SAID]
        yield FAILED.found(f"{start['replaced']}: {words}", {"entrypoint": start.get("replaced"), "image": start["image"]})
    elif start.get("replaced"):
        raise Skip(f"the entrypoint is itself a program, so it was replaced: {start['replaced']}")


def of_image(facts: Facts) -> Mapping[str, Any]:
    """How gpudoctor started the image; Skip if it did not."""
    reply = facts.replies.starting_with("container-start").get("container-start")
    if not reply or not reply.value["started"] or reply.value.get("container"):
        raise Skip("no container was started from an image")
    start: Mapping[str, Any] = reply.value
    return start


CHECK = Check(
    judge=judge,
    summary=lambda facts: "the entrypoint ran the given command",
    problems=(FAILED,),
    tags=("docker",),
)
