#!/usr/bin/env bash
# hours.sh - simulated clusters with seeds that nobody has run before.
#   tools/hours.sh SECONDS [AIM...]   each aim (all of them without) in turn, together so long
#   tools/hours.sh --total            hours and wrong seeds of all rows of docs/HOURS.tsv
#
# Seeds come from the clock; they are told before they are run, and a wrong one with its number. One
# process a processor. What was run is appended to docs/HOURS.tsv: it is the record that
# docs/INVARIANTS.md cites.
set -uo pipefail
cd "$(dirname "$0")/.."
record=docs/HOURS.tsv
sim=build/release/tests/sim/sim

if [ "${1:-}" = --total ]; then
    awk -F'\t' 'NR > 1 { hours += $6; seeds += $5; wrong += $7 }
                END { printf "%d seeds, %.0f cluster-hours, %d wrong\n", seeds, hours, wrong }' "$record"
    exit
fi
seconds=${1:?how many seconds?}
shift
aims=("$@")
[ ${#aims[@]} -gt 0 ] || read -ra aims <<<"$($sim --aims)"
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- src tests/sim tests/support || commit+=-changed
out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
bad=0

# row AIM FIRST LOG: what one process has run.
row() {
    local seeds hours wrong
    read -r seeds hours < <(sed -n 's/^# \([0-9]*\) seeds from [0-9]*: \([0-9.]*\) cluster-hours.*/\1 \2/p' "$3")
    wrong=$(sed -n 's/^.*ok - simulator: \([0-9]*\) of .*/\1/p' "$3")
    [ -n "$seeds" ] && [ -n "$wrong" ] || { echo "not ok - $1 seeds from $2"; tail -3 "$3"; bad=1; return; }
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$commit" "$1" "$2" "$seeds" "$hours" "$wrong" >>"$record"
    grep '^# seed' "$3"
    if [ "$wrong" -eq 0 ]; then echo "ok - $1: $seeds seeds from $2, $hours cluster-hours"; else bad=1; echo "not ok - $1: $wrong of $seeds seeds from $2"; fi
}

for aim in "${aims[@]}"; do
    now=$(date +%s)
    for ((i = 0; i < $(nproc); i++)); do
        first=$((now * 1000000 + i * 500000))
        echo "# $aim: seeds from $first"
        "$sim" --seeds "$first" 500000 --seconds $((seconds / ${#aims[@]})) --aim "$aim" >"$out/$aim.$first" 2>&1 &
    done
    wait
    for log in "$out/$aim".*; do row "$aim" "${log##*.}" "$log"; done
done
exit $bad
