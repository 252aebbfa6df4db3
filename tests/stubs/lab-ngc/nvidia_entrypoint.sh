#!/bin/bash
# As NVIDIA's does: sources each script of entrypoint.d, prints each text, and becomes the command.
for part in /opt/nvidia/entrypoint.d/*; do
  case $part in
    *.sh) source "$part" ;;
    *.txt) cat "$part" ;;
  esac
done
echo
exec "$@"
