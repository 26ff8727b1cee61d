package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"example.org/belay"
	"example.org/belay/txn"
)

// run does what one line says.
func (d *driver) run(ctx context.Context, r *request) (any, error) {
	done := object{}
	switch r.Op {
	case "hello":
		return object{"language": "go"}, nil
	case "open":
		return done, d.open(r)
	case "close":
		return done, d.client(r.Client).Close()
	case "where":
		c := d.client(r.Client)
		return object{"address": orNull(c.Address()), "session": orNull(c.Session())}, nil
	case "lock":
		return d.lock(ctx, r)
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		if cancel := d.running[r.Target]; cancel != nil {
			cancel()
		}
		return done, nil
	case "block":
		return done, d.block(ctx, r)
	case "leave":
		d.mu.Lock()
		defer d.mu.Unlock()
		close(d.leaving[r.Held])
		return done, nil
	case "held":
		return object{"held": d.held(r.Held).Held()}, nil
	case "check":
		current, err := d.held(r.Held).Check(ctx)
		return object{"current": current}, err
	case "set_body":
		return done, d.held(r.Held).SetBody(ctx, []byte(*r.Body))
	case "convert":
		held := d.held(r.Held)
		err := held.Convert(ctx, d.options(r)...)
		return object{"fence": held.Fence()}, err
	case "release":
		held, err := d.held(r.Held).Release()
		return object{"held": held}, err
	case "show":
		return d.show(ctx, r)
	case "break":
		count, err := d.client(r.Client).Break(ctx, r.Name, r.Reason)
		return object{"count": count}, err
	case "call":
		value, err := d.client(r.Client).Call(ctx, r.Words...)
		return object{"value": value}, err
	case "watch":
		return done, d.watch(r)
	case "campaign":
		held, err := d.client(r.Client).Election(r.Name).Campaign(ctx, d.options(r)...)
		if err != nil {
			return nil, err
		}
		d.keep(r, held)
		return object{"fence": held.Fence()}, nil
	case "leader":
		leader, err := d.client(r.Client).Election(r.Name).Leader(ctx)
		return object{"leader": leaderOf(leader)}, err
	case "observe":
		return done, d.observe(r)
	case "unwatch":
		d.mu.Lock()
		end := d.ends[r.Watch]
		d.mu.Unlock()
		end()
		return done, nil
	case "transaction":
		return d.transaction(ctx, r)
	case "builder":
		return object{"statements": built}, nil
	case "count":
		return d.count(ctx, r)
	}
	return nil, errUnknownOp
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (d *driver) show(ctx context.Context, r *request) (any, error) {
	info, err := d.client(r.Client).Show(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	holders, waiters := []object{}, []object{}
	for _, h := range info.Holders {
		holders = append(holders, object{"owner": h.Owner, "mode": h.Mode, "fence": h.Fence})
	}
	for _, w := range info.Waiters {
		waiters = append(waiters, object{"owner": w.Owner, "position": w.Position})
	}
	return object{"state": info.State, "body": string(info.Body), "holders": holders, "waiters": waiters}, nil
}

func leaderOf(l *belay.Leader) any {
	if l == nil {
		return nil
	}
	return object{"owner": l.Owner, "fence": l.Fence, "body": string(l.Body)}
}

// stream tells what comes until it is ended; when end returns, nothing comes any more.
func stream[T any](d *driver, r *request, open func(context.Context) (<-chan T, error), tell func(T) object) error {
	ctx, cancel := context.WithCancel(context.Background())
	events, err := open(ctx)
	if err != nil {
		cancel()
		return err
	}
	ended := make(chan struct{})
	d.mu.Lock()
	d.ends[r.Watch] = func() { cancel(); <-ended }
	d.mu.Unlock()
	go func() {
		defer close(ended)
		for e := range events {
			d.write(tell(e))
		}
	}()
	return nil
}

func (d *driver) watch(r *request) error {
	c := d.client(r.Client)
	return stream(d, r, func(ctx context.Context) (<-chan belay.Event, error) {
		return c.Watch(ctx, r.Prefix)
	}, func(e belay.Event) object {
		return object{"event": "news", "watch": r.Watch, "word": e.Word, "name": e.Name, "fence": e.Fence}
	})
}

func (d *driver) observe(r *request) error {
	c := d.client(r.Client)
	return stream(d, r, func(ctx context.Context) (<-chan *belay.Leader, error) {
		return c.Election(r.Name).Observe(ctx)
	}, func(l *belay.Leader) object {
		return object{"event": "leader", "watch": r.Watch, "leader": leaderOf(l)}
	})
}

func (d *driver) transaction(ctx context.Context, r *request) (any, error) {
	t := belay.Transaction{}
	for _, s := range r.Statements {
		t.Statements = append(t.Statements, txn.JSON(string(s)))
	}
	if r.Wait != nil {
		t.Wait = duration(*r.Wait)
	}
	result, err := d.client(r.Client).Transact(ctx, t)
	if err != nil {
		return nil, err
	}
	return object{
		"status": result.Status, "cause": orNull(result.Cause), "failed": orNull(result.Failed), "data": result.Data,
	}, nil
}

// built is what reference.json has.
var built = []txn.Statement{
	txn.Assert(txn.Not(txn.Exists("t", "a"))),
	txn.Assert(txn.Exists("t", "b", txn.Value(object{"n": 1}), txn.IgnoreThisSession(false))),
	txn.Block(
		txn.Anyway(txn.Set("t", "c", "v")),
		txn.Anyway(txn.Set("t", "d", []any{1, nil, true}, txn.TTL(1500*time.Millisecond), txn.Description("why"),
			txn.AllowDuplicates(), txn.RespectExclusive())),
	),
	txn.IfElse(txn.And(txn.True(), txn.Or(txn.False(), txn.Xor(txn.True(), txn.False()))),
		txn.SelectConstant("branch", "then"), txn.Abort()),
	txn.If(txn.Delete("t", "c"), txn.Abort()),
	txn.Anyway(txn.Delete("t", "d", txn.Value(7))),
	txn.Select("one", "t", "a"),
	txn.Select("all", "t", "b", txn.Many(), txn.IgnoreThisSession(false), txn.AbortIfNotFound()),
	txn.SelectOperator("was", txn.Unlock("l", txn.Owner("o"))),
	txn.Assert(txn.Lock("l", txn.Into("fence"))),
	txn.Assert(txn.Lock("m", txn.Owner("o"), txn.Shared(), txn.TTL(time.Second), txn.Grace(10*time.Millisecond),
		txn.Delay(20*time.Millisecond))),
	txn.Assert(txn.Lock("s", txn.Permits(2, 5))),
	txn.Assert(txn.Unlock("m", txn.Fence(9))),
}

// count guards a counter in a file, with many tasks at once.
func (d *driver) count(ctx context.Context, r *request) (any, error) {
	var all sync.WaitGroup
	errs := make([]error, r.Tasks)
	done := make([]int, r.Tasks)
	for i := 0; i < r.Tasks; i++ {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			for done[i] < r.Rounds && errs[i] == nil {
				var added bool
				added, errs[i] = d.countOnce(ctx, r)
				if added {
					done[i]++
				}
			}
		}()
	}
	all.Wait()
	sum := 0
	for i := range done {
		sum += done[i]
		if errs[i] != nil {
			return nil, errs[i]
		}
	}
	return object{"done": sum}, nil
}

func (d *driver) countOnce(ctx context.Context, r *request) (bool, error) {
	var options []belay.LockOption
	if r.TTL != nil {
		options = append(options, belay.TTL(duration(*r.TTL)))
	}
	held, err := d.client(r.Client).Lock(ctx, r.Name, options...)
	if err != nil {
		return false, err
	}
	defer func() { _, _ = held.Release() }()
	file, err := os.OpenFile(r.File, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	digits := make([]byte, 20)
	if _, err := file.ReadAt(digits, 0); err != nil {
		return false, err
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return false, err
	}
	log, err := os.OpenFile(r.Log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	defer log.Close()
	if !held.Held() {
		return false, nil
	}
	if _, err := file.WriteAt([]byte(fmt.Sprintf("%020d", n+1)), 0); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(log, "%d %d go\n", n+1, held.Fence())
	return err == nil, err
}
