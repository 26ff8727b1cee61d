# lib.sh - what the e2e tests in bash share. Source it; call `finish` at the end.
#
#   start_server [OPTION...]   a real server on a free port; sets SERVER_PID, exports BELAY_ADDR
#   ok NAME CONDITION...       one TAP line; the condition is a command
#   is NAME GOT WANT           the same for two strings
#   exits NAME CODE COMMAND... the command's exit status
# Every process started through start_server or background is ended by its pid at the end.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BELAY=${BELAY:-$PWD/build/belay}
WORK=$(mktemp -d)
PIDS=()
FAILED=0
export NO_COLOR=
unset BELAY_ADDR BELAY_NAMESPACE

cleanup() {
    local p
    for p in "${PIDS[@]}"; do kill -CONT "$p" 2>/dev/null; kill -KILL "$p" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT

ok() {
    local name=$1
    shift
    if "$@"; then echo "ok - $name"; else echo "not ok - $name"; FAILED=$((FAILED + 1)); fi
}

is() {
    if [ "$2" = "$3" ]; then
        echo "ok - $1"
    else
        echo "not ok - $1"
        printf '# got:  %s\n# want: %s\n' "${2//$'\n'/$'\n'# }" "$3"
        FAILED=$((FAILED + 1))
    fi
}

exits() {
    local name=$1 want=$2 got=0
    shift 2
    "$@" >"$WORK/out" 2>"$WORK/err" || got=$?
    if [ "$got" = "$want" ]; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        echo "# exit $got, not $want: $* -- $(tail -3 "$WORK/err")"
        FAILED=$((FAILED + 1))
    fi
}

has() { # has NAME TEXT PATTERN
    if grep -q -- "$3" <<<"$2"; then
        echo "ok - $1"
    else
        echo "not ok - $1"
        printf '# no "%s" in: %s\n' "$3" "${2//$'\n'/$'\n'# }"
        FAILED=$((FAILED + 1))
    fi
}

# until_true SECONDS COMMAND...: looks every 10 ms; false when the time is over.
until_true() {
    local end=$(($(date +%s%N) + $1 * 1000000000))
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "$(date +%s%N)" -lt "$end" ] || return 1
        sleep 0.01
    done
}

background() { # background COMMAND...: sets BG_PID
    "$@" &
    BG_PID=$!
    PIDS+=("$BG_PID")
}

start_server() {
    local log=$WORK/server.$RANDOM
    "$BELAY" serve --listen "${LISTEN:-127.0.0.1:0}" --memory "$@" >"$log.out" 2>"$log.err" &
    SERVER_PID=$!
    PIDS+=("$SERVER_PID")
    if ! until_true 5 grep -q '^listening' "$log.out"; then
        echo "not ok - server starts"
        cat "$log.err"
        exit 1
    fi
    BELAY_ADDR=$(sed -n 's/^listening //p' "$log.out")
    export BELAY_ADDR
}

stop_server() { # stop_server [SIGNAL]
    kill "-${1:-TERM}" "$SERVER_PID" 2>/dev/null
    wait "$SERVER_PID" 2>/dev/null
}

json() { # json FILTER: reads stdin with python, prints the value
    python3 -c 'import json,sys
v = json.loads(sys.stdin.readline())
for k in sys.argv[1].split("."):
    v = v[int(k)] if k.isdigit() else v[k]
print(str(v).lower() if isinstance(v, bool) else v)' "$1"
}

finish() { [ "$FAILED" -eq 0 ]; }
