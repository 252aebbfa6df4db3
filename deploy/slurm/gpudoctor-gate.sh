#!/bin/sh
# Prolog, Epilog and HealthCheckProgram of Slurm: drains this node, with the reason, if its GPUs are unfit for jobs.
#
#   Prolog=/etc/slurm/gpudoctor-gate.sh
#   Epilog=/etc/slurm/gpudoctor-gate.sh
#   HealthCheckProgram=/etc/slurm/gpudoctor-gate.sh
#   HealthCheckInterval=300
#
# Options of gpudoctor gate, such as --expect-gpus 8, are read from /etc/default/gpudoctor:
#   GATE_OPTIONS="--expect-gpus 8"

GPUDOCTOR=/opt/gpudoctor/bin/gpudoctor
GATE_OPTIONS=
# shellcheck source=/dev/null
[ -r "${GPUDOCTOR_DEFAULTS:-/etc/default/gpudoctor}" ] && . "${GPUDOCTOR_DEFAULTS:-/etc/default/gpudoctor}"

# shellcheck disable=SC2086
reason=$("$GPUDOCTOR" gate $GATE_OPTIONS </dev/null 2>/dev/null)
# Only 1 means unfit. A missing program, a wrong option or a time limit must not drain a node.
[ $? -eq 1 ] || exit 0

node=${SLURMD_NODENAME:-$(hostname -s)}
scontrol update nodename="$node" state=drain reason="gpudoctor: $reason"
# Slurm requeues the job if the prolog fails. The exit code of the others does not matter.
[ "${SLURM_SCRIPT_CONTEXT:-}" = prolog_slurmd ] && exit 1
exit 0
