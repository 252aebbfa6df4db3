"""A command line that is typed as for docker: the line that gpudoctor run takes."""

from __future__ import annotations

import shlex

import click


class AsWithDocker(click.Command):
    """Shows the right line to those who type the image as with docker, before the command."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        is_named = any(word.partition("=")[0] in ("--image", "-h", "--help") for word in before)
        if not (is_named or context.resilient_parsing) and (line := self._meant(context, args)):
            raise click.UsageError(f"the image is given with --image: {line}", context)
        return super().parse_args(context, args)

    def _meant(self, context: click.Context, args: list[str]) -> str:
        """The line with --image; "" if there is no image or there are unknown options."""
        try:
            typed = self.make_parser(context).parse_args([*args])[0]["command"]
        except click.UsageError:
            return ""
        if not isinstance(typed, (tuple, list)):  # nothing was typed
            return ""
        options, rest = args[: len(args) - len(typed)], [word for word in typed if word != "--"]
        if not rest:
            return ""
        from gpudoctor.containers.run import private
        from gpudoctor.containers.run.words import pairs

        shown = [private.shown(piece) for piece in pairs([word for word in options if word != "--"])]
        line = " ".join(["gpudoctor run --image", shlex.quote(rest[0]), *shown])
        return f"{line} -- {private.shown(rest[1:])}" if rest[1:] else line
