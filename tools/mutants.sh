#!/usr/bin/env bash
# mutants.sh - proves that the machine's tests bite: each row breaks one rule in a copy of the
# sources, and the unit and model tests must notice. Exits 1 if a mutant lives.
#   tools/mutants.sh [PATTERN]     only the mutants whose name matches
set -uo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
cp -r Makefile src include tests bench "$tmp/"
cd "$tmp" || exit 1
export MODEL_OPS=${MODEL_OPS:-300000} MODEL_SEED=${MODEL_SEED:-1} CMOCKA_MESSAGE_OUTPUT=TAP
lived=0 caught=0

build() { make -s -j"$(nproc)" VARIANT=debug WARN= models $(for t in tests/unit/test_machine_*.c; do echo "build/debug/${t%.c}"; done); }

# mutant NAME FILE PERL-EXPRESSION: the expression must change the file.
mutant() {
    local name=$1 file=$2 expression=$3 unit=lives model=lives t
    [[ $name =~ ${only:-.} ]] || return 0
    cp "$file" "$tmp/kept"
    perl -0pi -e "$expression" "$file"
    if cmp -s "$file" "$tmp/kept"; then
        echo "$name: the edit does not fit $file any more"; lived=$((lived + 1)); return
    fi
    if ! build >"$tmp/log" 2>&1; then
        echo "$name: does not build"; tail -3 "$tmp/log"; lived=$((lived + 1)); cp "$tmp/kept" "$file"; return
    else
        for t in build/debug/tests/unit/test_machine_*; do
            case $t in *.o | *.d) continue ;; esac
            (timeout 120 "$t"; exit) >"$tmp/log" 2>&1 || { unit=${t##*test_machine_}; break; }
        done
        (timeout 300 build/debug/tests/model/model_machine; exit) >"$tmp/log" 2>&1 || model=caught
    fi
    cp "$tmp/kept" "$file"
    printf '| %-52s | %-14s | %-6s |\n' "$name" "$unit" "$model"
    if [ "$unit" = lives ] && [ "$model" = lives ]; then lived=$((lived + 1)); else caught=$((caught + 1)); fi
}

only=${1:-}
build || exit 1
m=src/machine
mutant "the waiter of a dead session is granted" $m/line.c 's/return session_over\(w->session, now_ms\) \|\| w->deadline_ms/return w->deadline_ms/'
mutant "a waiter that has run out is granted" $m/line.c 's/session_over\(w->session, now_ms\) \|\| w->deadline_ms <= now_ms/session_over(w->session, now_ms)/'
mutant "the counter is not what the snapshot says" $m/snapshot.c 's/(m->counter = [^;]*;)/$1\n    m->counter += 7;/'
mutant "overdue is lost in the snapshot" $m/snapshot.c 's/h->overdue = overdue;/h->overdue = false;/'
mutant "waits of an owner out of order after a snapshot" $m/snapshot.c 's/qsort\(ld->waits, ld->n_waits[^;]*;/;/'
mutant "no wake-up when a hold ends" $m/lock.c 's/free\(h\);\s*lock_touch\(m, l\);/free(h);/'
mutant "no wake-up when a waiter leaves" $m/line.c 's/unlink_and_free\(m, w\);\s*lock_touch\(m, l\);/unlink_and_free(m, w);/'
mutant "no wake-up when a closed lock opens" $m/machine.c 's/lock_touch\(m, heap_item\(top, struct more, closed\)->lock\);/;/'
mutant "a reader overtakes a hard writer" $m/request.c 's/l->more->n_barring == 0/true/'
mutant "a reader does not pass a soft writer" $m/request.c 's/op->mode == MODE_SHARED \? l->more->n_barring == 0 : l->more->n_waits == 0/l->more->n_waits == 0/'
mutant "a lease is alive at its very end" $m/state.h 's/end->at <= now_ms;/end->at < now_ms;/'
mutant "ends are worked off one millisecond late" $m/machine.c 's/top->at <= m->now_ms/top->at < m->now_ms/'
mutant "ends are worked off one millisecond early" $m/machine.c 's/top->at <= m->now_ms/top->at <= m->now_ms + 1/'
mutant "asking again keeps the old fence" $m/lock.c 's/h->end\.seq = \+\+m->counter;/h->end.seq = h->end.seq;/'
mutant "a voluntary end closes the lock too" $m/lock.c 's/\(kind == EVENT_EXPIRED \|\| kind == EVENT_BROKEN\) && //'
mutant "renewing does not clear overdue" $m/request.c 's/(h->ttl_ms = \(uint32_t\)ttl_ms;\s*)h->overdue = false;/$1/'
mutant "a new reader does not disturb who waits for quiet" $m/lock.c 's/w->quiet_from_ms = m->now_ms;/;/'
mutant "an upgrade stands last" $m/line.c 's/list_push_front\(&l->more->waits, &w->in_lock\);/list_push_back(&l->more->waits, &w->in_lock);/'
mutant "a deadlock is not looked for" $m/deadlock.c 's/who_same\(holder, w->origin\) \|\| //'
mutant "a lost hold leaves its upgrade waiting" $m/lock.c 's/if \(upgrade\)\s*wait_end/if (false)\n        wait_end/'
echo "mutants: $caught caught, $lived lived"
[ "$lived" -eq 0 ]
