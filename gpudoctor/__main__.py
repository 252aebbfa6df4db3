"""`python -m gpudoctor`."""

from gpudoctor.cli import main

main(prog_name="gpudoctor")
