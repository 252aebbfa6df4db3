#!/bin/sh
# Stands in for Slurm's srun: the name of the node says what becomes of it.
for option; do
  case $option in --nodelist=*) node=${option#--nodelist=} ;; esac
done
while case $1 in -*) true ;; *) false ;; esac; do shift; done
marker=$5
case $node in
  busy*) echo "srun: error: Unable to allocate resources: Requested nodes are busy" >&2; exit 1 ;;
  down*) echo "srun: error: Required node not available (down, drained or reserved)" >&2; exit 1 ;;
  bare*) echo "sh: 1: exec: not found" >&2; exit 127 ;;
  silent*) exec sleep 613 ;;
  hangs*) "$@"; exec sleep 613 ;;
  lines*) exec yes "$marker not a message" ;;
  line*) exec tr '\0' x </dev/zero ;;
  twice*) "$@" | while IFS= read -r line; do printf '%s\n%s\n' "$line" "$line"; done ;;
  hostile*)
    printf '\n%s{"python": "/bin/true", "ctypes": "x"}\n' "$marker"
    printf '%s{"question": "nvml", "reply": {"status": "ok", "value": [[[[1e999, "\\ud800"]]]], "detail": 3, "seconds": null}}\n' "$marker"
    printf '%s{"question": "../../etc/passwd", "reply": {"status": "ok", "value": "\\u001b[2J", "detail": "", "seconds": 0}}\n' "$marker"
    printf '%s{"ended": 0}\n' "$marker"
    exec sleep 613
    ;;
  *) exec "$@" ;;
esac
