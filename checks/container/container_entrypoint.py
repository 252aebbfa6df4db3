"""The image's entrypoint hands over to the command that it is given.

What it means
An entrypoint prepares what a program needs (NVIDIA's switches forward compatibility on) and then becomes that program. One
that ends before has refused: no program comes up in this image as it is.

How it is judged
gpudoctor starts its own command through the entrypoint (check --image). Where that ends first, the image is looked into
without it, and what it said is the finding.

Known exceptions
An entrypoint that is a program of its own, such as a server, is left out from the start; what it sets is then not seen.

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
    title="The image's entrypoint ends before it starts the command it is given",
    why="It refused, or it takes the command for arguments of its own. This report is of the image without it, so that what it "
    "would have set is missing here.",
    action=Action.FIX_CONFIG,
    status=Status.WARN,
    fixes=(
        Fix("See what it says, and what it wants (a variable, a licence, a mounted file)", "<docker> run --rm <image> true"),
        Fix("Start the image without it", "<docker> run --rm -it --entrypoint sh <image>"),
    ),
    references=("https://docs.docker.com/reference/dockerfile/#entrypoint",),
)


def judge(facts: Facts) -> Iterator[Finding]:
    start = of_image(facts)
    if said := start.get("entrypoint_failed"):
        words = " ".join(said.split())[:MOST_SAID]
        yield FAILED.found(f"{start['replaced']}: {words}", {"entrypoint": start.get("replaced"), "image": start["image"]})
    elif start.get("replaced"):
        raise Skip(f"it is a program of its own: {start['replaced']}")


def of_image(facts: Facts) -> Mapping[str, Any]:
    """How gpudoctor started the image; a Skip where it did not."""
    reply = facts.replies.starting_with("container-start").get("container-start")
    if not reply or not reply.value["started"] or reply.value.get("container"):
        raise Skip("no container was started of an image")
    start: Mapping[str, Any] = reply.value
    return start


CHECK = Check(
    judge=judge,
    summary=lambda facts: "the entrypoint handed over",
    problems=(FAILED,),
)
