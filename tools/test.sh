#!/usr/bin/env bash
# test.sh - every test, cheapest first; stops at the first step that fails.
#   tools/test.sh            all steps, then "N passed, N failed"
#   tools/test.sh STEP...    only these (check unit model sim canaries fuzz-short e2e tidy fuzz soak)
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

# run NAME COMMAND...: its TAP lines count; a non-zero exit counts as one more failure.
run() {
    local name=$1 start=$SECONDS ok bad rc=0
    shift
    "$@" >"$out/log" 2>&1 || rc=$?
    ok=$(grep -cE '^[[:space:]]*ok\b' "$out/log")
    bad=$(grep -cE '^[[:space:]]*not ok\b' "$out/log")
    if [ $rc -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ $((ok + bad)) -eq 0 ]; then bad=1; echo "$name: no test ran"; fi
    passed=$((passed + ok)) failed=$((failed + bad))
    if [ "$bad" -ne 0 ]; then tail -n 200 "$out/log"; fi
    printf '%-44s %5d ok %3d not ok %4ds\n' "$name" "$ok" "$bad" $((SECONDS - start))
    [ "$bad" -eq 0 ]
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

files() { git ls-files --cached --others --exclude-standard "$@"; }

step_check() {
    run "check: self-test" tap self-test tools/check.sh --self-test &&
        run "check: layers, doors, headers, lengths" tap rules tools/check.sh &&
        run "check: format" tap format bash -c 'clang-format-14 --dry-run -Werror "$@"' - $(files '*.c' '*.h')
}

step_unit() {
    build "gcc release" all && build "clang release" CC=clang VARIANT=release build/release-clang/belay lib &&
        build "gcc asan unit tests" VARIANT=asan tests || return 1
    local t rc=0
    for t in build/asan/tests/unit/test_*[!.]?; do
        case $t in *.o | *.d) continue ;; esac
        run "unit: $(basename "$t")" "$t" || rc=1
    done
    return $rc
}

step_model() {
    build "gcc asan model tests" VARIANT=asan models || return 1
    local t rc=0
    for t in build/asan/tests/model/model_*; do
        case $t in *.o | *.d) continue ;; esac
        run "model: $(basename "$t")" "$t" || rc=1
    done
    return $rc
}

# Whole clusters on simulated disks, networks and clocks; a seed reproduces. 30 cluster-hours with seeds that
# are always the same, then new ones for each commit.
step_sim() {
    build "gcc release and asan simulator" sim && build "gcc asan simulator" VARIANT=asan sim || return 1
    local fresh=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1) + 100000)) rc=0
    run "sim: fixed seeds" build/release/tests/sim/sim --seeds 1 2500 --seconds 300 --hours 30 || rc=1
    run "sim: the same seed, the same history" build/release/tests/sim/sim --seeds 1 50 --twice || rc=1
    run "sim: fixed seeds, asan" build/asan/tests/sim/sim --seeds 1 200 --seconds 60 || rc=1
    run "sim: new seeds from $fresh" build/release/tests/sim/sim --seeds "$fresh" 1000000 --seconds 20 || rc=1
    return $rc
}

# Nights: seeds that nobody has run. They come from the clock; the first is told before it begins, and a wrong
# one with its number.
soak_sim() {
    build "simulator" sim || return 1
    local first=${SIM_FIRST:-$(date +%s)000} seconds=${SIM_SECONDS:-14400}
    echo "sim: seeds from $first for $seconds s"
    run "sim: seeds from $first" build/release/tests/sim/sim --seeds "$first" 1000000000 --seconds "$seconds"
}

# Does the simulator bite? Each known defect, switched on, must be found: wrong with it, right without.
canary() { # canary WHAT AIM OPTION MASK
    run "sim finds: $1" build/release/tests/sim/sim --seeds 1 5000 --seconds 300 --aim "$2" "$3" "$4" --expect-wrong
}
step_canaries() {
    build "simulator" sim || return 1
    local rc=0
    canary "an answer before fdatasync" all --canaries 1 || rc=1
    canary "a read without a question" reads --canaries 2 || rc=1
    canary "an op applied again" all --canaries 4 || rc=1
    canary "no counter in the snapshot" all --canaries 8 || rc=1
    canary "the commit rule of figure 8" all --guards-off 8192 || rc=1
    canary "a snapshot inside another" snapshots --guards-off 2 || rc=1
    canary "entries before the snapshot" snapshots --guards-off 128 || rc=1
    canary "a term used twice" alone --guards-off 512 || rc=1
    canary "a learner that has a vote" alone --guards-off 1024 || rc=1
    canary "an old refusal believed" refusals --guards-off 2048 || rc=1
    return $rc
}

# fuzz_all SECONDS: the corpus first, then new inputs; a crash leaves its file in the corpus.
fuzz_all() {
    local t name rc=0
    build "fuzz targets" CC=clang VARIANT=fuzz fuzzers || return 1
    for t in build/fuzz-clang/tests/fuzz/fuzz_*; do
        case $t in *.o | *.d) continue ;; esac
        name=$(basename "$t")
        mkdir -p "tests/fuzz/corpus/${name#fuzz_}" "$out/$name"
        run "fuzz: $name" tap "$name" "$t" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
            -artifact_prefix="tests/fuzz/corpus/${name#fuzz_}/crash-" "$out/$name" "tests/fuzz/corpus/${name#fuzz_}" || rc=1
    done
    return $rc
}
step_fuzz-short() { fuzz_all "${FUZZ_SECONDS:-10}"; }
step_fuzz() { fuzz_all "${FUZZ_SECONDS:-3600}"; }

step_e2e() {
    build "gcc release" all || return 1
    local t rc=0
    for t in tests/e2e/test_* tests/faults/test_*; do
        [ -x "$t" ] || continue
        run "e2e: $(basename "$t")" "$t" || rc=1
    done
    return $rc
}

step_tidy() {
    run "tidy: cppcheck" tap cppcheck cppcheck -q --std=c11 --enable=warning,performance,portability \
        --inline-suppr --suppressions-list=tools/cppcheck.txt --error-exitcode=1 -j "$jobs" -Isrc -Iinclude src &&
        run "tidy: clang-tidy" tap clang-tidy bash -c \
            'printf "%s\n" "$@" | xargs -P '"$jobs"' -I{} clang-tidy-14 --quiet {} -- -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -isystem /usr/share/include/llhttp -isystem /usr/include/postgresql 2>/dev/null' - \
            $(files 'src/*.c')
}

step_soak() { soak_sim && MODEL_OPS=${MODEL_OPS:-100000000} step_model && FUZZ_SECONDS=${FUZZ_SECONDS:-600} step_fuzz; }

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(check unit model sim canaries e2e fuzz-short tidy)
for s in "${steps[@]}"; do
    "step_$s" || { failed=$((failed ? failed : 1)); break; }
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
