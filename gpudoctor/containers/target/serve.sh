# Runs in a container: finds a Python, then executes the requests on standard input, one per line.
# Arguments: a marker for the output, the program of a job, the requested Python or environment (or ""), "adopt" in a container
# that was already running (it then takes over the environment of the first process, which the entrypoint set), and the lines
# with which a Python program keeps the current folder off sys.path. PYTHONSAFEPATH does so earlier, from Python 3.11 on.
marker=$1 bootstrap=$2 wanted=$3 adopt=$4 imports_nothing_here=$5
export GPUDOCTOR_JOB="$marker" # to find leftover processes
say() { printf '\n%s%s\n' "$marker" "$1"; }
run() { PYTHONSAFEPATH=${PYTHONSAFEPATH:-gpudoctor} "$@"; }
can() { run "$1" -c "$imports_nothing_here
import sys$2; sys.exit(sys.version_info < (3, 8))" >/dev/null 2>&1 </dev/null; }
if [ "$adopt" ] && [ -r /proc/1/environ ]; then
  while IFS= read -r pair; do
    case ${pair%%=*} in
      '' | [0-9]* | *[!A-Za-z0-9_]*) ;;
      *) export "$pair" ;;
    esac
  done <<END
$(tr '\0' '\n' </proc/1/environ)
END
fi
if [ "$wanted" ]; then
  set -- "$wanted" "$wanted/bin/python" "$wanted/bin/python3"
else
  set -- python3 python /usr/local/bin/python3 /opt/conda/bin/python3 /usr/libexec/platform-python
fi
for needs in ', ctypes' ''; do
  for python; do
    can "$python" "$needs" && break 2
    python=
  done
done
broken= # a Python that is installed, but too old or does not start
for each; do
  [ -z "$python$broken" ] && command -v "$each" >/dev/null 2>&1 && broken=$each
done
greet() { say "{\"python\": \"$python\", \"ctypes\": \"$needs\", \"broken\": \"$broken\"}"; }
greet
show() { printf '\n%s@%s\n' "$marker" "$1"; }
while read -r word rest; do
  case $word in
    python)
      can "$rest" ', ctypes' && python=$rest needs=', ctypes'
      greet
      ;;
    job)
      run "$python" -c "$bootstrap"
      say "{\"ended\": $?}"
      ;;
    look)
      for path in $rest; do
        if [ -f "$path" ] && [ -r "$path" ]; then
          show "file $path" && cat "$path"
        elif [ -e "$path" ]; then
          show "denied $path"
        fi
      done
      for mark in /.dockerenv /run/.containerenv /run/secrets/kubernetes.io /var/run/secrets/kubernetes.io; do
        [ -e "$mark" ] && show "mark $mark"
      done
      show environment && env
      show identity && id -u && id -g && id -G
      show nodes
      for node in /dev/nvidia* /dev/dxg; do
        [ -e "$node" ] || continue
        [ -r "$node" ] && [ -w "$node" ] && printf '1 ' || printf '0 '
        ls -lnd "$node"
      done
      [ "$broken" ] && show "broken $broken" && run "$broken" -c 'import sys; sys.stdout.write("version " + sys.version)' 2>&1 </dev/null
      show shm && df -k /dev/shm
      show ldconfig && { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null
      show smi && { nvidia-smi -L 2>&1 && echo "code 0" || echo "code $?"; }
      say '{"ended": 0}'
      ;;
  esac
done
