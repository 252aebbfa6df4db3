#!/bin/sh
# A plugin of node-problem-detector: reads what the DaemonSet gpudoctor wrote. Needs no GPU, no driver and no Python.
# Mount the host's /run/gpudoctor into the pod of node-problem-detector, read-only.
# Exit code: 0 the condition is false, 1 it is true, 2 unknown.

file=${GPUDOCTOR_GATE_FILE:-/run/gpudoctor/gate}
if ! [ -r "$file" ]; then
  echo "gpudoctor has not run on this node: $file does not exist"
  exit 2
fi
if [ -z "$(find "$file" -mmin -30)" ]; then
  echo "gpudoctor has not run on this node for 30 minutes"
  exit 2
fi
read -r code reason <"$file"
case $code in
  0) exit 0 ;;
  1) echo "$reason"; exit 1 ;;
  *) echo "${reason:-gpudoctor could not examine the GPUs}"; exit 2 ;;
esac
