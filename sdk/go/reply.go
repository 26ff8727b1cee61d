package belay

import (
	"fmt"
	"strconv"
	"time"
)

// What is not of the expected kind reads as nothing: it was checked where it matters.

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

func wholeOf(v any) int64 {
	n, _ := v.(int64)
	return n
}

func realOf(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return 0
}

func fenceOf(v any) uint64 { return uint64(wholeOf(v)) }

func rowsOf(v any) []map[string]any {
	items, _ := v.([]any)
	var rows []map[string]any
	for _, item := range items {
		if row, ok := item.(map[string]any); ok {
			rows = append(rows, row)
		}
	}
	return rows
}

func durationOf(v any) time.Duration {
	if n, ok := v.(int64); ok && n >= 0 {
		return time.Duration(n) * time.Millisecond
	}
	return Forever
}

// millis is d in whole milliseconds: at least 1 if d is anything.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// A grant is the answer to ACQUIRE and CONVERT.
type grant struct {
	fence uint64
	body  string
}

func grantOf(name string, a answer) (grant, error) {
	if a.err != nil {
		return grant{}, a.err
	}
	items, _ := a.value.([]any)
	if len(items) == 0 {
		return grant{}, errProtocol
	}
	switch word := textOf(items[0]); {
	case word == "granted" && len(items) == 4 && fenceOf(items[1]) > 0:
		return grant{fenceOf(items[1]), textOf(items[3])}, nil
	case word == "timeout":
		return grant{}, fmt.Errorf("belay: %s: %w", name, ErrTimedOut)
	case word == "refused" && len(items) > 1:
		return grant{}, &RefusedError{Name: name, Reason: textOf(items[1]), Holders: holdersOf(items[2:])}
	case word == "deadlock":
		return grant{}, &DeadlockError{Name: name, Cycle: cycleOf(items[1:])}
	}
	return grant{}, errProtocol
}

// holdersOf reads "[owner, mode, fence, expires_in_ms]...".
func holdersOf(rows []any) []Holder {
	var all []Holder
	for _, row := range rows {
		if r, _ := row.([]any); len(r) >= 4 {
			all = append(all, Holder{
				Owner: textOf(r[0]), Mode: textOf(r[1]), Fence: fenceOf(r[2]), ExpiresIn: durationOf(r[3]),
			})
		}
	}
	return all
}

// cycleOf reads "[owner, waits_for]...".
func cycleOf(rows []any) []Edge {
	var all []Edge
	for _, row := range rows {
		if r, _ := row.([]any); len(r) >= 2 {
			all = append(all, Edge{Owner: textOf(r[0]), WaitsFor: textOf(r[1])})
		}
	}
	return all
}
