# Waits until gpudoctor writes "done" or exits. If it exits without "done", removes the container that was left.
# Arguments: the engine's program, the folder with the cidfile, the label of the run, and optionally the only state in which a
# container is removed.
trap '' HUP INT QUIT TERM
read -r word
[ "$word" = done ] && exit
limit= # a stuck daemon never answers
timeout -s KILL 30 true 2>/dev/null && limit='timeout -s KILL 30'
tries=0
while [ "$tries" -lt 40 ]; do # a container may just be starting
  id=$(cat "$2/container" 2>/dev/null)
  found=$id
  if [ -z "$id" ] || [ -n "$4" ]; then
    found=$($limit "$1" ps --all --quiet --filter "label=$3" ${4:+--filter "status=$4"} 2>/dev/null)
    [ -n "$id" ] && [ -z "$found" ] && break # it has started, so it is kept
    [ -n "$4" ] && [ "$tries" -lt 4 ] && found= # a program can run before its engine reports that it has started
  fi
  if [ -n "$found" ]; then
    $limit "$1" kill $found >/dev/null 2>&1 # podman rm alone would wait ten seconds
    said=$($limit "$1" rm --force --volumes $found 2>&1) && break
    case $said in *'o such container'* | *'already in progress'*) break ;; esac
  fi
  tries=$((tries + 1))
  sleep 0.25
done
rm -rf "$2"
