#!/usr/bin/env bash
# test.sh - every test, cheapest first; stops at the first step that fails.
#   tools/test.sh            all steps, then "N passed, N failed"
#   tools/test.sh STEP...    only these (check unit model sim canaries tsan fuzz-short e2e tidy quick fuzz soak)
#
# Every test program prints TAP lines ("ok ..." / "not ok ..."); they are what is counted.
# A step that ran no test has failed: a check that checks nothing is a defect.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
passed=0 failed=0
export CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

# count NAME LOG EXIT-CODE SECONDS: its TAP lines count; a non-zero exit counts as one more failure.
count() {
    local name=$1 log=$2 rc=$3 ok bad
    ok=$(grep -cE '^[[:space:]]*ok\b' "$log")
    bad=$(grep -cE '^[[:space:]]*not ok\b' "$log")
    if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ $((ok + bad)) -eq 0 ]; then bad=1; echo "$name: no test ran"; fi
    passed=$((passed + ok)) failed=$((failed + bad))
    if [ "$bad" -ne 0 ]; then # its seeds and its failures first: the end of a log may not hold them
        grep -E '^[[:space:]]*not ok|_SEED=' "$log" | head -n 20
        tail -n 200 "$log"
    fi
    printf '%-44s %5d ok %3d not ok %4ds\n' "$name" "$ok" "$bad" "$4"
    [ "$bad" -eq 0 ]
}

# run NAME COMMAND...: by itself; what has time-outs or takes times wants the machine alone.
run() {
    local name=$1 start=$SECONDS rc=0
    shift
    "$@" >"$out/log" 2>&1 || rc=$?
    count "$name" "$out/log" "$rc" $((SECONDS - start))
}

# with TOOL NAME COMMAND...: run, where that version of the tool is; other versions judge differently.
with() {
    local tool=$1
    shift
    if command -v "$tool" >/dev/null; then run "$@"; else echo "$1: left out, $tool is not on this machine"; fi
}

# side NAME COMMAND...: as many at a time as there are processors. gather: waits for them.
# Both count what has ended meanwhile. all: 0 while nothing has failed since the last gather.
sides=() all=0
side() {
    local n=${#sides[@]}
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    reap
    sides+=("$1")
    shift
    (start=$SECONDS rc=0; "$@" >"$out/$n" 2>&1 || rc=$?; echo "$rc $((SECONDS - start))" >"$out/$n.part" && mv "$out/$n.part" "$out/$n.end") &
}
reap() {
    local n rc seconds
    for n in "${!sides[@]}"; do
        [ -n "${sides[$n]}" ] && [ -e "$out/$n.end" ] || continue
        read -r rc seconds <"$out/$n.end"
        count "${sides[$n]}" "$out/$n" "$rc" "$seconds" || all=1
        sides[$n]=
    done
}
gather() {
    local any
    wait
    reap
    any=$all
    rm -f "$out"/*.end
    sides=() all=0
    return "$any"
}

# tap NAME COMMAND...: one TAP line for a command that only has an exit code.
tap() {
    local name=$1
    shift
    if "$@"; then echo "ok - $name"; else echo "not ok - $name"; fi
}

build() { # build WHAT MAKE-ARGUMENTS...
    local what=$1
    shift
    run "build: $what" tap "$what" make --no-print-directory -s -j"$jobs" "$@"
}

no_files() { ! cat "$1"/* 2>/dev/null; } # shows them, if there are any

files() { git ls-files --cached --others --exclude-standard "$@"; }

step_check() {
    run "check: self-test" tap self-test tools/check.sh --self-test &&
        run "check: layers, doors, headers, lengths" tap rules tools/check.sh &&
        run "check: the edits of the mutants fit" tap mutants tools/mutants.sh --fit &&
        with clang-format-14 "check: format" tap format bash -c 'clang-format-14 --dry-run -Werror "$@"' - $(files '*.c' '*.h')
}

step_unit() {
    build "gcc release" all && build "clang release" CC=clang VARIANT=release build/release-clang/belay lib &&
        build "gcc asan unit tests" VARIANT=asan tests || return 1
    local t
    for t in build/asan/tests/unit/test_*[!.]?; do
        case $t in *.o | *.d) continue ;; esac
        side "unit: $(basename "$t")" "$t"
    done
    gather
}

step_model() {
    build "gcc asan model tests" VARIANT=asan models || return 1
    local t
    for t in build/asan/tests/model/model_*; do
        case $t in *.o | *.d) continue ;; esac
        side "model: $(basename "$t")" "$t"
    done
    gather
}

# Whole clusters on simulated disks, networks and clocks; a seed reproduces. 30 cluster-hours with seeds that
# are always the same, then new ones for each commit.
step_sim() {
    build "gcc release and asan simulator" sim && build "gcc asan simulator" VARIANT=asan sim || return 1
    local fresh=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1) + 100000))
    side "build: earlier versions" tap "earlier versions" tests/releases/build # for tests/faults/test_rolling
    side "sim: fixed seeds, first half" build/release/tests/sim/sim --seeds 1 1250 --seconds 300 --hours 15
    side "sim: fixed seeds, second half" build/release/tests/sim/sim --seeds 1251 1250 --seconds 300 --hours 15
    side "sim: the same seed, the same history" build/release/tests/sim/sim --seeds 1 50 --twice
    side "sim: fixed seeds, asan" build/asan/tests/sim/sim --seeds 1 200 --seconds 60
    side "sim: members that lie, asan" build/asan/tests/sim/sim --seeds 1 150 --seconds 60 --aim liars
    side "sim: survivors, asan" build/asan/tests/sim/sim --seeds 1 100 --seconds 60 --aim disaster
    side "sim: new seeds from $fresh" build/release/tests/sim/sim --seeds "$fresh" 1000000 --seconds 20
    gather
}

# Nights: seeds that nobody has run; what was run is written down (docs/HOURS.tsv).
soak_sim() {
    build "simulator" sim && run "sim: seeds from the clock" tools/hours.sh "${SIM_SECONDS:-14400}"
}

# Does the simulator bite? Each known defect, switched on, must be found: wrong with it, right without.
canary() { # canary WHAT AIM OPTION MASK
    side "sim finds: $1" build/release/tests/sim/sim --seeds 1 5000 --seconds 300 --aim "$2" "$3" "$4" --expect-wrong
}
step_canaries() {
    build "simulator" sim || return 1
    canary "an answer before fdatasync" all --canaries 1
    canary "a read without a question" reads --canaries 2
    canary "an op applied again" all --canaries 4
    canary "no counter in the snapshot" all --canaries 8
    canary "a survivor that skips nothing" disaster --canaries 16384
    canary "a member taken for removed" places --canaries 256
    canary "a cancel by its number alone" gone --canaries 16
    canary "an older copy is believed" copies --canaries 512
    canary "an answer that is late" all --canaries 1024
    canary "leases without a margin for clocks" all --canaries 8192
    canary "a dead node's waiter" dead --canaries 2048
    canary "a session that was kept long ago" sessions --canaries 32
    canary "two members in one place" places --canaries 64
    canary "a leader that is not called back" places --canaries 4096
    canary "the commit rule of figure 8" all --guards-off 8192
    canary "a snapshot inside another" snapshots --guards-off 2
    canary "entries before the snapshot" snapshots --guards-off 128
    canary "a term used twice" alone --guards-off 512
    canary "a learner that has a vote" alone --guards-off 1024
    canary "an old refusal believed" refusals --guards-off 2048
    gather
}

# fuzz_all SECONDS: the corpus first, then new inputs; a crash leaves its file in the corpus.
fuzz_all() {
    local t name
    build "fuzz targets" CC=clang VARIANT=fuzz fuzzers || return 1
    for t in build/fuzz-clang/tests/fuzz/fuzz_*; do
        case $t in *.o | *.d) continue ;; esac
        name=$(basename "$t")
        mkdir -p "tests/fuzz/corpus/${name#fuzz_}" "$out/$name"
        side "fuzz: $name" tap "$name" "$t" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
            -artifact_prefix="tests/fuzz/corpus/${name#fuzz_}/crash-" "$out/$name" "tests/fuzz/corpus/${name#fuzz_}"
    done
    gather
}
step_fuzz-short() { fuzz_all "${FUZZ_SECONDS:-10}"; }
step_fuzz() { fuzz_all "${FUZZ_SECONDS:-3600}"; }

# lane COMMAND...: in a network namespace of its own, where this user may make one: no program beside
# it can take a port that a test has found free. It has an address that is not loopback.
lane() {
    if [ "$lanes" = yes ]; then unshare --net bash -c 'ip link set lo up && ip address add 198.51.100.7/24 dev lo && exec "$@"' - "$@"; else "$@"; fi
}

# Tests run side by side where they have namespaces. One that says "# alone: why" is run by itself.
step_e2e() {
    build "gcc release" all faults || return 1
    local t lanes=no together=() alone=() rc=0
    ! unshare --net ip link set lo up 2>/dev/null || lanes=yes
    for t in tests/e2e/test_* tests/faults/test_*; do
        [ -x "$t" ] || continue
        if [ $lanes = no ] || grep -q '^# alone: ' "$t"; then alone+=("$t"); else together+=("$t"); fi
    done
    for t in "${together[@]}"; do side "e2e: $(basename "$t")" lane "$t"; done
    gather || rc=1
    for t in "${alone[@]}"; do run "e2e: $(basename "$t")" lane "$t" || rc=1; done
    return $rc
}

# What has threads, under the thread sanitizer: the journal's writer, a snapshot that is fetched and
# judged, the fork that makes one, a worker's C function. Its reports fail the test that made them.
step_tsan() {
    build "gcc tsan" VARIANT=tsan build/tsan/belay lib && build "gcc release faults" all faults || return 1
    local t reports=$out/tsan rc=0
    mkdir "$reports"
    export TSAN_OPTIONS="log_path=$reports/report suppressions=$PWD/tools/tsan.txt"
    BELAY=$PWD/build/tsan/belay run "tsan: writer, snapshots" tests/faults/test_fetch nobody_notices || rc=1
    VARIANT=tsan run "tsan: a worker's C function" tests/e2e/test_queue_c || rc=1
    unset TSAN_OPTIONS
    run "tsan: reports" tap "no report" no_files "$reports" || rc=1
    return $rc
}

step_tidy() {
    run "tidy: cppcheck" tap cppcheck cppcheck -q --std=c11 --enable=warning,performance,portability \
        --inline-suppr --suppressions-list=tools/cppcheck.txt --error-exitcode=1 -j "$jobs" -Isrc -Iinclude src &&
        with clang-tidy-14 "tidy: clang-tidy" tap clang-tidy bash -c \
            'printf "%s\n" "$@" | xargs -P '"$jobs"' -I{} clang-tidy-14 --quiet {} -- -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -isystem /usr/share/include/llhttp -isystem /usr/include/postgresql 2>/dev/null' - \
            $(files 'src/*.c')
}

step_soak() { soak_sim && BELAY_CRASH_PAIRS=0 run "crash: every pair" tests/faults/test_crash && MODEL_OPS=${MODEL_OPS:-100000000} step_model && FUZZ_SECONDS=${FUZZ_SECONDS:-600} step_fuzz; }

# Two minutes, for every edit: the rules, the unit tests, a little of the model and of the simulator, one real server.
step_quick() {
    step_check && step_unit && MODEL_OPS=100000 step_model && build "simulator" sim || return 1
    side "sim: 150 fixed seeds" build/release/tests/sim/sim --seeds 1 150 --seconds 60
    gather && run "e2e: test_resp" tests/e2e/test_resp && run "e2e: test_http" tests/e2e/test_http
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(check unit model sim canaries tsan e2e fuzz-short tidy)
for s in "${steps[@]}"; do
    "step_$s" || { failed=$((failed ? failed : 1)); break; }
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
