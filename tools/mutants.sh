#!/usr/bin/env bash
# mutants.sh - proves that the machine's tests bite: each row breaks one rule in a copy of the
# sources, and the unit and model tests must notice. Exits 1 if a mutant lives.
#   tools/mutants.sh [PATTERN]     only the mutants whose name matches
#   tools/mutants.sh --fit         only checks that every edit still changes its file: seconds
set -uo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
cp -r Makefile src include tests bench "$tmp/"
cd "$tmp" || exit 1
export MODEL_OPS=${MODEL_OPS:-300000} MODEL_SEED=${MODEL_SEED:-1} CMOCKA_MESSAGE_OUTPUT=TAP
lived=0 caught=0 fit=
[ "${1:-}" != --fit ] || { fit=1; shift; }

units=test_machine_ model=model_machine
build() { [ -n "$fit" ] || make -s -j"$(nproc)" VARIANT=debug WARN= models $(for t in tests/unit/${units}*.c; do echo "build/debug/${t%.c}"; done); }

# mutant NAME FILE PERL-EXPRESSION: the expression must change the file.
mutant() {
    local name=$1 file=$2 expression=$3 unit=lives random=lives t
    [[ $name =~ ${only:-.} ]] || return 0
    [ -e "$file" ] && cp "$file" "$tmp/kept" || { echo "$name: there is no $file"; lived=$((lived + 1)); return; }
    perl -0pi -e "$expression" "$file"
    if cmp -s "$file" "$tmp/kept"; then
        echo "$name: the edit does not fit $file any more"; lived=$((lived + 1)); return
    fi
    if [ -n "$fit" ]; then
        caught=$((caught + 1)); cp "$tmp/kept" "$file"; return
    fi
    if ! build >"$tmp/log" 2>&1; then
        echo "$name: does not build"; tail -3 "$tmp/log"; lived=$((lived + 1)); cp "$tmp/kept" "$file"; return
    else
        for t in build/debug/tests/unit/${units}*; do
            case $t in *.o | *.d) continue ;; esac
            (timeout 120 "$t"; exit) >"$tmp/log" 2>&1 || { unit=${t##*test_}; unit=${unit#machine_}; break; }
        done
        [ -z "$model" ] || (timeout 300 "build/debug/tests/model/$model"; exit) >"$tmp/log" 2>&1 || random=caught
    fi
    cp "$tmp/kept" "$file"
    printf '| %-52s | %-14s | %-6s |\n' "$name" "$unit" "$random"
    if [ "$unit" = lives ] && [ "$random" = lives ]; then lived=$((lived + 1)); else caught=$((caught + 1)); fi
}

only=${1:-}
build || exit 1
m=src/machine
mutant "a session that ends is still found" $m/session.c 's/\(s->ending != REASON_NONE\) == k->ending/true/'
mutant "a session that ends is no more over in the snapshot" $m/snapshot.c 's/s->ending = ending;/;/'
mutant "the waiter of a dead session is granted" $m/line.c 's/return session_over\(w->session, m->now_ms\) \|\| w->deadline_ms/return w->deadline_ms/'
mutant "a waiter whose wait has run out is granted" $m/line.c 's/(return session_over\(w->session, m->now_ms\)) \|\| w->deadline_ms <= m->now_ms/$1/'
mutant "the counter is not what the snapshot says" $m/snapshot.c 's/(m->counter = [^;]*;)/$1\n    m->counter += 7;/'
mutant "the overdue mark is lost in the snapshot" $m/snapshot.c 's/h->overdue = overdue;/h->overdue = false;/'
mutant "waits of an owner out of order after a snapshot" $m/snapshot.c 's/qsort\(ld->waits, ld->n_waits[^;]*;/;/'
mutant "no wake-up when a hold ends" $m/lock.c 's/(sizeof \*h \+ h->owner_len\);)\s*lock_touch\(m, l\);/$1/'
mutant "no wake-up when a waiter leaves" $m/line.c 's/unlink_and_free\(m, w\);\s*lock_touch\(m, l\);/unlink_and_free(m, w);/'
mutant "no wake-up when a closed lock opens" $m/machine.c 's/lock_touch\(m, heap_item\(top, struct more, closed\)->lock\);/;/'
mutant "a reader overtakes a hard writer" $m/line.c 's/is_shared \? more->n_barring : more->n_waits\)/is_shared ? 0 : more->n_waits)/'
mutant "a reader does not pass a soft writer" $m/line.c 's/\(is_shared \? more->n_barring : more->n_waits\)/more->n_waits/'
mutant "several locks are freed with however many holders" $m/request.c 's/return n > LIMIT_HOLDERS;/return false;/'
mutant "a lease still counts at its very end" $m/state.h 's/end->at <= now_ms;/end->at < now_ms;/'
mutant "ends are processed one millisecond late" $m/machine.c 's/top->at <= m->now_ms/top->at < m->now_ms/'
mutant "ends are processed one millisecond early" $m/machine.c 's/top->at <= m->now_ms/top->at <= m->now_ms + 1/'
mutant "asking again keeps the old fence" $m/lock.c 's/h->end\.seq = \+\+m->counter;/h->end.seq = h->end.seq;/'
mutant "a voluntary end closes the lock too" $m/lock.c 's/\(kind == EVENT_EXPIRED \|\| kind == EVENT_BROKEN\) && //'
mutant "renewing does not clear overdue" $m/request.c 's/(h->terms.ttl_ms = \(uint32_t\)ttl_ms;\s*)h->overdue = false;/$1/'
mutant "a new reader does not restart the quiet time of a timed waiter" $m/lock.c 's/l->more->quiet_from_ms = m->now_ms;/;/'
mutant "a step serves a line beyond its share" $m/line.c 's/m->line_units == 0/false/'
mutant "who is behind the share of a step is forgotten" $m/line.c 's/if \(used_up && w->end.at > m->now_ms\)\s*heap_set/if (false)\n        heap_set/'
mutant "a walk goes on behind the upgrade's late ticket" $m/line.c 's/!v->upgrade && //'
mutant "a turn that is due is lost when its end is moved" $m/line.c 's/m->level >= LEVEL_PARTS && over\(&w->end, m->now_ms\)\)\s*lock_touch/false)\n        lock_touch/'
mutant "an upgrade joins the end of the line" $m/line.c 's/list_push_front\(&l->more->waits, &w->in_lock\);/list_push_back(&l->more->waits, &w->in_lock);/'
mutant "a deadlock is not looked for" $m/deadlock.c 's/who_same\(holder, w->origin\) \|\| //'
mutant "a lost hold leaves its upgrade waiting" $m/lock.c 's/if \(upgrade\)\s*wait_end/if (false)\n        wait_end/'
mutant "a request that is sent again is carried out again" $m/machine.c 's/if \(r\) \{\s*receipt_repeat/if (r \&\& (receipt_forget(m, r), false)) {\n        receipt_repeat/'
mutant "another request under the id gets the answer" $m/receipt.c 's/r->content != m->receipts\.asked/false/'
mutant "an answer is kept a millisecond too long" $m/receipt.c 's/r->at_ms \+ RECEIPT_MS <= m->now_ms/r->at_ms + RECEIPT_MS < m->now_ms/'
mutant "a late cancel frees what was asked for again" $m/receipt.c 's/h->asker = 0;\s*struct event \*ev = hold_tell/struct event *ev = hold_tell/'
mutant "a re-acquire that is called off frees what was held" $m/request.c 's/hold_granted\(m, h, fx\);\s*h->asker = 0;/hold_granted(m, h, fx);/'
mutant "of several names only the last one is given back" $m/request.c 's/acquire_one\(m, s, &one, session, fx\);\s*struct event/one.asker = i + 1 == n ? op->asker : 0;\n        acquire_one(m, s, &one, session, fx);\n        struct event/'
mutant "the answer of a cancelled grant is repeated" $m/cancel.c 's/receipt_cancel\(m, op\);//'
mutant "the repeated answer of a renewal has the remaining time of the first" $m/receipt.c 's/count_down\(&was\.expires_in_ms, passed_ms\);/;/'
mutant "a waiter that comes back gets a new place" $m/request.c 's/w->receipt->at_ms \+ op->wait_ms/m->now_ms + op->wait_ms/'
mutant "a waiter that does not come back counts as timed out" $m/line.c 's/if \(w->away == AWAY_CUT\)\s*wait_end/if (false)\n        wait_end/'
mutant "the end of a wait is not remembered" $m/line.c 's/if \(reason != REASON_CANCEL\)\s*receipt_settle\(m, &w->receipt, ev\);//'
mutant "a replaced request is not answered for good" $m/request.c 's/receipt_settle\(m, &w->receipt, ev\);\s*wait_ask/if (w->receipt)\n        receipt_forget(m, w->receipt);\n    w->receipt = NULL;\n    wait_ask/'
mutant "the snapshot does not contain that a node is gone" $m/snapshot.c 's/\*ret_away = \(enum away\)loader_bounded\(ld, AWAY_CUT\);/(void)loader_bounded(ld, AWAY_CUT);/'
mutant "a waiter that is sent away is called off" $m/cancel.c 's/op->flags & OP_AWAY && w->receipt/false/'
mutant "a grant to a waiter that was sent away is freed" $m/cancel.c 's/op->flags & OP_AWAY && op->request\.len/false/'
mutant "the youngest receipt is dropped first" $m/receipt.c 's/receipt_forget\(m, oldest\(m\)\);/receipt_forget(m, r);/'
mutant "a cancel applies to anything with the asker's number" $m/machine.c 's/m->by_number = by_number;/m->by_number = true;/'
mutant "a cancel frees what was granted before it was asked" $m/cancel.c 's/\(hold_fence\(h\) >= op->fence \|\| m->by_number\)/true/'
mutant "a cancel applies to any owner" $m/cancel.c 's/if \(op->owner\.len && !slice_eq\(op->owner, who\.owner\)\)/if (false)/'

# transactions: tests/unit/test_txn*.c and model_txn
units=test_txn model=model_txn
MODEL_OPS=$((MODEL_OPS / 5))
build || exit 1
mutant "an abort undoes in the wrong order" $m/txn.c 's/for \(size_t i = e->x->n_changes; i-- > 0;\)/for (size_t i = 0; i < e->x->n_changes; i++)/'
mutant "an abort leaves what was set" $m/txn.c 's/record_unlink\(e->m, c->record, c->prev\);\s*free\(c->record\);/;/'
mutant "what is selected costs nothing" $m/txn_var.c 's/return txn_spend\(e, WORK_SELECTED \+ bytes/return txn_spend(e, 0 * bytes/'
mutant "or stops at the first true operand" $m/txn.c 's/trues \+= eval_operator\(e\);/{\n        trues += eval_operator(e);\n        if (node == NODE_OR \&\& trues)\n            return true;\n    }/'
mutant "exists takes any value" $m/txn_var.c 's/\(!\(v->flags & VAR_HAS_VALUE\) \|\| slice_eq\(record_value\(r\), v->value\)\)/true/'
mutant "set is re-entrant" $m/txn_var.c 's/!\(v->flags & VAR_ALLOW_DUPLICATES\) \|\|/(!(v->flags \& VAR_ALLOW_DUPLICATES) \&\& (slot->n_records != 1 || slot->records->session != e->session)) ||/'
mutant "an exclusive record is not respected" $m/txn_var.c 's/respects && r->exclusive/false/'
mutant "a record that is over still counts" $m/txn_var.c 's/slot = slot_bury\(e->m, slot, e->fx\);//'
mutant "no wake-up when a variable is changed" $m/txn.c 's/if \(changed\)\s*slot_changed\(e->m, slot\);/;/'
mutant "no wake-up when a variable ends" $m/table.c 's/slot_changed\(m, r->slot\);/;/'
mutant "no wake-up when a lock is freed" $m/lock.c 's/lock_changed\(m, l\);(\s*BELAY_DCHECK\(!l->touched)/$1/'
mutant "the watches of the first evaluation are kept" $m/txn_wait.c 's/if \(p->n_watches != n\)\s*return false;/if (p->n_watches)\n        return true;/'
mutant "the highest ticket goes first" $m/txn_wait.c 's/heap_set\(&m->ready, &p->ready, p->end\.seq\)/heap_set(\&m->ready, \&p->ready, UINT64_MAX - p->end.seq)/'
mutant "a wait that has run out still happens" $m/txn_wait.c 's/ \|\| over\(&p->end, m->now_ms\);/;/'
mutant "a transaction passes the waiters in the line of a lock" $m/txn_lock.c 's/!line_bars\(m, v->lock, [^;]*;/true;/'
mutant "an unlock of the plan is not seen" $m/txn_lock.c 's/&& !is_freed\(plan, h\) \? h : NULL/? h : NULL/'
mutant "a fence that the plan makes stale still unlocks" $m/txn_lock.c 's/ && !is_renewed\(plan, h\)//'
mutant "readiness is lost in the snapshot" $m/snapshot_vars.c 's/if \(ready\)\s*heap_set/if (false)\n        heap_set/'
mutant "the order of a session.s records is lost in the snapshot" $m/snapshot_vars.c 's/qsort\(ld->records[^;]*;/;/'

# several groups: tests/unit/test_router.c, which draws its own storms, and test_router_session.c
units=test_router model=
build || exit 1
mutant "a message is taken twice" $m/outbox.c 's/if \(number == box->taken \+ 1\) \{/if (true) {/'
mutant "what was taken is lost in the snapshot" $m/outbox.c 's/varint_put\(out, box->taken\);/varint_put(out, 0);/'
mutant "messages are not in the snapshot" $m/outbox.c 's/varint_put\(out, box->n_messages\);\s*list_each \(it, &box->messages\)/varint_put(out, 0);\n        for (struct list *it = NULL; it; it = NULL)/'
mutant "the end of a session stays in group 0" $m/session.c 's/session_tell\(m, s->enrolled, &message\);(\s*s->ending)/$1/'
mutant "where a session is known is lost in the snapshot" $m/snapshot.c 's/s->enrolled = enrolled;/;/'
mutant "the session that is meant is lost in the snapshot" $m/snapshot.c 's/s->home = home;/;/'
mutant "a session is not kept for longer" $m/session.c 's/\(several \? s->ttl_ms \/ 4 : 0\)/0/'
mutant "a session is used without being kept" src/engine/router.c 's/if \(!s \|\| is_kept\(e, group, op\)\)/if (true)/'
mutant "a keep counts for twice as long" src/engine/router.c 's/k->ttl_ms \/ 5/2 * k->ttl_ms \/ 5/'
mutant "an op is of any session with its id" $m/session.c 's/s->home != op->number/false/'
mutant "a session that is over is used" $m/session.c 's/op->flags & OP_OVER \|\| another/another/'
mutant "a linger shortens what was promised" $m/session.c 's/end > s->owed_ms \? end : s->owed_ms/end/'
mutant "sessions do not move to the next level" $m/machine.c 's/old_sessions_move\(m\);/;/'
mutant "a deleted namespace stays in group 0" $m/namespace.c 's/outbox_post\(m, 0, &message\);/;/'
mutant "a lost message is not sent again" src/engine/router.c 's/now - c->at_ms >= SEND_AGAIN_MS \|\| //'
mutant "an answer does not wait for its messages" src/engine/router.c 's/if \(s && !is_true_now\(e, h\)\)/if (s \&\& !is_true_now(e, h) \&\& false)/'
mutant "SESSION CLOSE is answered before the last part" src/engine/router.c 's/return !still_ends\(e, &h->ev\);/return true;/'
[ -n "$fit" ] || echo "mutants: $caught caught, $lived lived"
[ -z "$fit" ] || echo "mutants: $caught edits fit, $lived do not"
[ "$lived" -eq 0 ]
