// Package txn builds transactions: statements over variables and locks, of which all happen or
// none. docs/TRANSACTIONS.md of Belay says what each of them means.
//
//	statements := []txn.Statement{
//		txn.Assert(txn.Not(txn.Exists("Month-End", "CGROVE-35"))),
//		txn.Assert(txn.Set("MDS-Entry", "CGROVE-35", "R-45899", txn.AllowDuplicates())),
//	}
package txn

import (
	"encoding/json"
	"time"
)

// A node is one member with its value: {"assert": ...}.
type node struct {
	word  string
	value any
}

func (n node) MarshalJSON() ([]byte, error) {
	if raw, ok := n.value.(json.RawMessage); ok {
		return raw, nil
	}
	return json.Marshal(map[string]any{n.word: n.value})
}

// A Statement is one step of a transaction.
type Statement struct{ node }

// An Op is true or false, and may change something.
type Op struct{ node }

type members map[string]any

// An Option is a member that a statement or an operator may have.
type Option func(members)

func (m members) with(options []Option) members {
	for _, o := range options {
		o(m)
	}
	return m
}

// ---- statements -------------------------------------------------------------------------------

// Assert aborts the transaction when op is false.
func Assert(op Op) Statement { return Statement{node{"assert", op}} }

// Abort aborts the transaction.
func Abort() Statement { return Statement{node{"abort", members{}}} }

// Block does the statements in order, until one aborts.
func Block(statements ...Statement) Statement { return Statement{node{"block", statements}} }

// If does then when cond is true.
func If(cond Op, then Statement) Statement {
	return Statement{node{"if", members{"cond": cond, "then": then}}}
}

// IfElse does then when cond is true, and otherwise when it is false.
func IfElse(cond Op, then, otherwise Statement) Statement {
	return Statement{node{"if", members{"cond": cond, "then": then, "else": otherwise}}}
}

// Anyway does op, whatever it says.
func Anyway(op Op) Statement { return Statement{node{"anyway", op}} }

// Select adds the oldest record of a key to the data, or null. It takes [Many],
// [IgnoreThisSession] and [AbortIfNotFound].
func Select(into, table, key string, options ...Option) Statement {
	return Statement{node{"select", members{"into": into, "table": table, "key": key}.with(options)}}
}

// SelectConstant adds a value of your own to the data.
func SelectConstant(into string, value any) Statement {
	return Statement{node{"select_constant", members{"into": into, "value": value}}}
}

// SelectOperator adds true or false to the data.
func SelectOperator(into string, op Op) Statement {
	return Statement{node{"select_operator", members{"into": into, "op": op}}}
}

// JSON is a statement as docs/TRANSACTIONS.md writes it.
func JSON(text string) Statement { return Statement{node{value: json.RawMessage(text)}} }

// ---- operators --------------------------------------------------------------------------------

// True is true.
func True() Op { return Op{node{"true", members{}}} }

// False is false.
func False() Op { return Op{node{"false", members{}}} }

// Not is true when op is false.
func Not(op Op) Op { return Op{node{"not", op}} }

// And is true when all are. All of them are evaluated, whatever the others say.
func And(ops ...Op) Op { return Op{node{"and", ops}} }

// Or is true when one is. All of them are evaluated.
func Or(ops ...Op) Op { return Op{node{"or", ops}} }

// Xor is true when an odd number of them is. All of them are evaluated.
func Xor(ops ...Op) Op { return Op{node{"xor", ops}} }

// Exists is true when another session has a record there. It takes [Value] and
// [IgnoreThisSession].
func Exists(table, key string, options ...Option) Op {
	return Op{node{"exists", members{"table": table, "key": key}.with(options)}}
}

// Set is true when the key was free; it is set now. It takes [TTL], [Description],
// [AllowDuplicates] and [RespectExclusive].
func Set(table, key string, value any, options ...Option) Op {
	return Op{node{"set", members{"table": table, "key": key, "value": value}.with(options)}}
}

// Delete is true when this session had a record there; it is gone now. It takes [Value].
func Delete(table, key string, options ...Option) Op {
	return Op{node{"delete", members{"table": table, "key": key}.with(options)}}
}

// Lock is true when the lock could be had at once; it is held now. It takes [Owner], [Shared],
// [Permits], [TTL], [Grace], [Delay] and [Into].
func Lock(name string, options ...Option) Op {
	return Op{node{"lock", members{"name": name}.with(options)}}
}

// Unlock is true when the lock was held; it is free now. It takes [Owner] or [Fence].
func Unlock(name string, options ...Option) Op {
	return Op{node{"unlock", members{"name": name}.with(options)}}
}

// ---- options ----------------------------------------------------------------------------------

func member(name string, value any) Option {
	return func(m members) { m[name] = value }
}

// Value must be the value of the record.
func Value(value any) Option { return member("value", value) }

// IgnoreThisSession false counts records of the own session, too.
func IgnoreThisSession(ignore bool) Option { return member("ignore_this_session", ignore) }

// TTL ends the record or the lease by itself.
func TTL(d time.Duration) Option { return member("ttl_ms", d.Milliseconds()) }

// Description says what the record is for.
func Description(text string) Option { return member("description", text) }

// AllowDuplicates sets a record beside those of other sessions.
func AllowDuplicates() Option { return member("allow_duplicates", true) }

// RespectExclusive does not set a record beside one that was set without [AllowDuplicates].
func RespectExclusive() Option { return member("respect_exclusive", true) }

// Many selects all records, as an array.
func Many() Option { return member("many", true) }

// AbortIfNotFound aborts the transaction when there is no record.
func AbortIfNotFound() Option { return member("abort_if_not_found", true) }

// Into adds the fence to the data under this name.
func Into(name string) Option { return member("into", name) }

// Owner holds the lock. The default is the session.
func Owner(owner string) Option { return member("owner", owner) }

// Shared takes the lock together with other shared holders.
func Shared() Option { return member("mode", "shared") }

// Permits takes permits of a semaphore that has so many of them in all.
func Permits(permits, of int) Option {
	return func(m members) { m["permits"], m["of"] = permits, of }
}

// Grace keeps the lock from others for so long after its lease is over.
func Grace(d time.Duration) Option { return member("grace_ms", d.Milliseconds()) }

// Delay keeps the lock closed for so long after it was lost, and not given back.
func Delay(d time.Duration) Option { return member("delay_ms", d.Milliseconds()) }

// Fence is the fence of the hold.
func Fence(fence uint64) Option { return member("fence", fence) }
