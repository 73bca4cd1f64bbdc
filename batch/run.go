package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed"
)

// DefaultPriority is the priority of a job's requests, below that of other requests. With
// the default of queue.Queue.Aging, a request with priority 0 goes before all requests of
// the job that have waited for less than 100 seconds.
const DefaultPriority = -10

// Options holds the settings of a job. The zero Options is ready to use.
type Options struct {
	// Workers is the number of items that are processed at the same time. Zero means 10. More
	// workers than the limits of the server allow do no harm: their requests wait in the
	// queue of the Transport.
	Workers int

	// Priority is the heed.RequestOptions.Priority of the job's requests. Zero means that of
	// the context of Run or, if that is zero too, DefaultPriority.
	Priority int

	// Total is the number of items, for Progress. Zero means that it is not known.
	Total int

	// Monitor shows the job on a debugpage.Page and in metrics, with the name Job. Nil means that
	// it is not shown.
	Monitor *Monitor

	// Progress is called with the state of the job: every ProgressInterval, and when the job
	// has ended. It is called by one goroutine at a time; the workers do not wait for it, but
	// Run returns only when it has returned. Nil means none.
	Progress func(Progress)

	// ProgressInterval is the time between two calls of Progress. Zero means one second.
	ProgressInterval time.Duration

	// Checkpoint is the path of a file that records which items are done, so that a job that
	// was killed continues where it was. The file is created if it does not exist, with mode
	// 0600. It stays when the job has ended, so that a second start does nothing: remove it
	// to process all items again. Empty means none.
	Checkpoint string

	// Job is the name of the job that the checkpoint belongs to, such as that of its input
	// with a version. Run fails with ErrOtherJob if the checkpoint was made with another
	// name. Empty is a name, too.
	Job string

	// ItemKey returns a text that recognizes an item when a job continues, such as its ID. If
	// the checkpoint was made with other items, Run fails with ErrOtherJob. It is called only
	// if Checkpoint is set. Nil means the JSON of the item.
	ItemKey func(item any) string

	// Repeat states which items are processed again when a job continues, and after a pause.
	// The zero value is RepeatSafe.
	Repeat Repeat

	// KeyLifetime is the time for which the server remembers an Idempotency-Key. An item that
	// sent one is not repeated by RepeatSafe when it has elapsed. Zero means 24 hours, as
	// with many servers; a negative value means for any time.
	KeyLifetime time.Duration

	// MaxFailures is the number of failed items after which no further items begin. Items
	// that failed in earlier processes and are not repeated do not count. Zero means that
	// failures do not end the job.
	MaxFailures int

	// StopTimeout is the time for which calls of the function may continue when the job stops:
	// when the context of Run has ended or the checkpoint cannot be written. Their contexts end
	// after it. Zero means 10 seconds. A negative value means none: the contexts of the calls
	// end with that of Run, so that what they have sent may have an unknown outcome.
	StopTimeout time.Duration

	// MaxPause is the longest time for which the job pauses because of a limit of the server,
	// see Run. If the server states a longer one, the job ends with a *PauseError. Zero means
	// 24 hours.
	MaxPause time.Duration
}

// Repeat states which items are processed again: when a job continues, of those that failed,
// or that were begun and not finished; and after a pause, of those that caused it, see Run.
type Repeat int

const (
	// RepeatSafe repeats items whose function has sent a request with the context that it got
	// through a heed.Transport, if all such requests are safe to repeat: idempotent ones,
	// those that were rejected, and those with an Idempotency-Key that begins with
	// Item.IdempotencyKey. An item without such a request has effects that Run cannot know,
	// and is not repeated. Items that have other effects beside such requests must be
	// idempotent, or need RepeatNever.
	RepeatSafe Repeat = iota

	// RepeatAlways repeats all of these items. The function can ask the server what was done
	// if Item.Repeated is set.
	RepeatAlways

	// RepeatNever repeats none: the function is called at most once for an item. Each item
	// costs a write to disk before it begins.
	RepeatNever
)

const (
	defaultWorkers     = 10
	defaultInterval    = time.Second
	defaultKeyLifetime = 24 * time.Hour
	defaultMaxPause    = 24 * time.Hour
	defaultStopTimeout = 10 * time.Second

	unknownPause = time.Minute // length of a pause whose end is not known
	maxPauses    = 100         // pauses after which an item fails
	maxErrors    = 1000        // length of Report.Errors
)

// Validate returns an error if a field has a value that Run rejects.
func (o Options) Validate() error {
	if o.Repeat < RepeatSafe || o.Repeat > RepeatNever {
		return fmt.Errorf("batch: Options.Repeat is %d: it must be one of the constants", o.Repeat)
	}
	return rejectNegative("Options", []field{
		{"Workers", int64(o.Workers)}, {"Total", int64(o.Total)}, {"ProgressInterval", int64(o.ProgressInterval)},
		{"MaxFailures", int64(o.MaxFailures)}, {"MaxPause", int64(o.MaxPause)},
	})
}

// A field is a number in Options or OutboxConfig.
type field struct {
	name  string
	value int64
}

// rejectNegative returns an error if one of the fields of a struct is negative.
func rejectNegative(name string, fields []field) error {
	for _, f := range fields {
		if f.value < 0 {
			return fmt.Errorf("batch: %s.%s is %d: it must not be negative", name, f.name, f.value)
		}
	}
	return nil
}

// withDefaults returns o with defaults for zero fields.
func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.ProgressInterval == 0 {
		o.ProgressInterval = defaultInterval
	}
	if o.KeyLifetime == 0 {
		o.KeyLifetime = defaultKeyLifetime
	}
	if o.MaxPause == 0 {
		o.MaxPause = defaultMaxPause
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = defaultStopTimeout
	}
	return o
}

// A Report is the result of a job. It is complete also if Run returns an error.
type Report struct {
	// Done is the number of items that are done, including Resumed.
	Done int

	// Resumed is the number of items that earlier processes had done.
	Resumed int

	// Failed is the number of items whose function returned an error, in this process, or in
	// an earlier one if they were not repeated.
	Failed int

	// Unknown is the number of items with an unknown outcome, see ErrInterrupted. They were
	// not processed by this process.
	Unknown int

	// Interrupted is the number of items that this process began and did not finish, because
	// they took longer than Options.StopTimeout or waited for the end of a pause when the job
	// stopped. A later process can repeat them, see Repeat.
	Interrupted int

	// Repeated is the number of items that this process began although they had been begun
	// before: by an earlier process, or before a pause.
	Repeated int

	// Errors holds the errors of failed and unknown items in the order of the items, at most
	// 1000.
	Errors []ItemError

	// Cut is the number of bytes at the end of the checkpoint that were removed when it was
	// opened: of a record that was being written when the process ended, or of the last one if
	// it was damaged.
	Cut int64

	// Elapsed is the duration of Run.
	Elapsed time.Duration

	// Paused is the time for which the job paused because of limits of the server.
	Paused time.Duration
}

// Run calls fn for each item, for Options.Workers items at the same time, and returns when
// all items are processed. Items begin in the order of the sequence. An item is done when fn
// returns nil, and has failed when it returns an error; other items are processed all the
// same.
//
// The requests of fn must use the context that it gets, and an http.Client with a
// heed.Transport. The Transport delays them as its limits and those of the server require.
// If a request fails because a limit of the server does not admit it in time (with
// heed.ErrMaxWait, or throttled until no attempt or time is left) and fn returns an error,
// the job pauses: no item begins until the time that the server states, or for a minute if it
// states none. The item is then repeated as Options.Repeat permits, or has failed. An item
// that has paused the job 100 times fails.
//
// Run returns nil if all items are done. Otherwise the error matches ErrItems if all items
// were processed; ErrTooManyFailures, *PauseError, the cause of ctx, or the error of the
// checkpoint if the job ended early; ErrLocked or ErrDamaged if it did not begin; or
// ErrOtherJob. The Report is valid in all cases.
//
// If ctx ends, no further item begins, the calls of fn have Options.StopTimeout to finish, and
// Run returns when all have returned: the context of fn ends only then. The job stops in the same
// way if the checkpoint cannot be written because the disk is full, for which the file has a reserve
// for the outcomes of the items that are being processed. If ctx has a deadline, the job also
// stops when the Transport rejects a request that cannot be sent before the end of that time. The
// sequence is not interrupted while it computes an item.
//
// If fn panics, Run ends the contexts of the other calls, waits for them, and panics with a
// *PanicError on the goroutine of its caller; the checkpoint then has the item as not
// finished. If fn calls runtime.Goexit, Run does so, too. A function that wants a panic to be
// the error of its item must recover it.
func Run[T any](ctx context.Context, items iter.Seq[T], fn func(ctx context.Context, item T) error, o Options) (Report, error) {
	return run(ctx, items, func(ctx context.Context, item T) ([]byte, error) { return nil, fn(ctx, item) }, o, nil)
}

// Map is like Run, and returns the values that fn returns in the order of the items. The
// value of an item that is not done is the zero value, and the slice ends with the last item
// that is done. A checkpoint file also holds the values, as JSON, so that those of earlier
// processes are returned, too.
func Map[T, R any](ctx context.Context, items iter.Seq[T], fn func(ctx context.Context, item T) (R, error), o Options) ([]R, Report, error) {
	var (
		mu     sync.Mutex
		values []R
	)
	set := func(i int, v R) {
		mu.Lock()
		defer mu.Unlock()
		if n := i + 1 - len(values); n > 0 {
			values = append(values, make([]R, n)...)
		}
		values[i] = v
	}
	call := func(ctx context.Context, item T) ([]byte, error) {
		v, err := fn(ctx, item)
		if err != nil {
			return nil, err
		}
		var text []byte
		if o.Checkpoint != "" {
			if text, err = json.Marshal(v); err != nil {
				return nil, &storeError{err}
			}
		}
		set(ItemFrom(ctx).Index, v)
		return text, nil
	}
	restore := func(i int, value []byte) error {
		var v R
		if err := json.Unmarshal(value, &v); err != nil {
			return fmt.Errorf("%w: the value of item %d: %w", ErrOtherJob, i, err)
		}
		set(i, v)
		return nil
	}
	report, err := run(ctx, items, call, o, restore)
	return values, report, err
}

// A storeError means that the value of an item that is done cannot be stored.
type storeError struct{ err error }

func (e *storeError) Error() string { return "batch: the value cannot be stored: " + e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// A job is the state of a call of Run. Its fields are those of all types of items.
type job struct {
	o          Options
	id         jobID
	checkpoint *checkpoint // nil if there is none
	started    time.Time

	caller context.Context // of Run
	ctx    context.Context // of the items, with the options of the requests
	cancel context.CancelCauseFunc
	stop   context.Context // done once no further item may begin; ends with caller
	end    context.CancelCauseFunc
	pauses pauses

	complete bool // all items were passed to workers; set when the workers have ended

	mu       sync.Mutex
	report   Report
	active   int
	failures int  // items that failed in this process
	skipped  bool // a worker got an item and did not begin it
	estimate estimator
	stopping *time.Timer // calls cancel after StopTimeout; nil if that has not begun
	lastSend time.Time   // when the last request may begin that must not be repeated; zero before the job stops
	panic    *PanicError // the first panic
	exited   bool        // a function called runtime.Goexit
}

// run is Run for functions that return the value of an item to store, and restores values
// that earlier processes have stored.
func run[T any](ctx context.Context, items iter.Seq[T], fn func(context.Context, T) ([]byte, error), o Options, restore func(int, []byte) error) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	j := &job{o: o.withDefaults(), id: newJobID(), started: time.Now()}
	if o.Checkpoint != "" {
		c, err := openCheckpoint(j.o, restore)
		if err != nil {
			return Report{}, err
		}
		defer c.log.Close() // also if the sequence or Progress panics
		j.checkpoint, j.id, j.report.Cut = c, c.id, c.log.Cut()
	}
	defer j.begin(ctx)()
	err, end := errExited, j.monitor() // if the sequence, Progress or a function does not return
	defer func() { end(err) }()

	func() {
		defer j.reportProgress()()
		processAll(j, items, fn)
	}()
	var r Report
	r, err = j.result()
	return r, err
}

// begin sets the contexts of the job for that of its caller. The returned function ends them.
func (j *job) begin(caller context.Context) (end func()) {
	j.caller = caller
	ctx := caller
	endDeadline := func() {}
	if j.o.StopTimeout > 0 {
		ctx = context.WithoutCancel(caller)
		if deadline, ok := caller.Deadline(); ok {
			ctx, endDeadline = context.WithDeadline(ctx, deadline.Add(j.o.StopTimeout))
		}
	}
	ctx, j.cancel = context.WithCancelCause(ctx)
	j.ctx = j.withPriority(ctx)
	j.stop, j.end = context.WithCancelCause(caller)
	ignoreCaller := context.AfterFunc(caller, func() { j.stopFor(context.Cause(caller)) })
	return func() {
		ignoreCaller()
		j.end(nil)
		j.cancel(nil)
		endDeadline()
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.stopping != nil {
			j.stopping.Stop()
		}
	}
}

// stopFor stops the job: no further item begins, and the contexts of the items end after
// Options.StopTimeout. The first of several errors is that of the job.
func (j *job) stopFor(err error) {
	j.end(err)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopping == nil {
		timeout := max(j.o.StopTimeout, 0)
		j.stopping = time.AfterFunc(timeout, func() { j.cancel(context.Cause(j.stop)) })
		j.lastSend = time.Now().Add(timeout - timeout/10)
	}
}

// maySend reports whether a request may begin that must not be repeated. In the last tenth of
// Options.StopTimeout it may not, so that none is canceled while it is being written.
func (j *job) maySend() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ctx.Err() == nil && (j.lastSend.IsZero() || time.Now().Before(j.lastSend))
}

// withPriority returns ctx with the priority of the job's requests.
func (j *job) withPriority(ctx context.Context) context.Context {
	p := cmp.Or(j.o.Priority, heed.OptionsFrom(ctx).Priority, DefaultPriority)
	return heed.WithOptions(ctx, heed.RequestOptions{Priority: p})
}

// A task is an item that a worker processes.
type task[T any] struct {
	index    int
	item     T
	repeated bool
	sent     sent   // what earlier processes have sent
	identity uint32 // of the item in the checkpoint
}

// processAll passes the items to the workers in order, and returns when all have ended.
func processAll[T any](j *job, items iter.Seq[T], fn func(context.Context, T) ([]byte, error)) {
	tasks := make(chan task[T])
	var workers sync.WaitGroup
	normal := false
	defer func() {
		if !normal { // the sequence panicked
			j.abort(context.Canceled)
		}
		close(tasks)
		workers.Wait()
	}()
	spawned, index, stopped := 0, -1, false
	for item := range items {
		index++
		if stopped = j.stop.Err() != nil; stopped {
			break
		}
		t := task[T]{index: index, item: item}
		v, err := j.resume(t.index, item)
		if err != nil {
			j.stopFor(err)
			stopped = true
			break
		}
		if v.done || v.failed != nil {
			continue
		}
		t.repeated, t.sent, t.identity = v.repeated, v.sent, v.identity
		if spawned < j.o.Workers {
			spawned++
			workers.Go(func() {
				for t := range tasks {
					process(j, t, fn)
				}
			})
		}
		select {
		case tasks <- t:
			continue
		case <-j.stop.Done():
		}
		stopped = true
		break
	}
	normal, j.complete = true, !stopped
}

// resume returns what must be done with an item, given what earlier processes did, and counts
// it if that is nothing.
func (j *job) resume(index int, item any) (v verdict, err error) {
	if j.checkpoint == nil {
		return v, nil
	}
	if v, err = j.checkpoint.resume(index, item); err != nil {
		return v, err
	}
	switch {
	case v.done:
		j.count(func(r *Report) { r.Done++; r.Resumed++ })
	case v.failed != nil:
		j.addError(index, v.failed)
	}
	return v, nil
}

// process calls fn for an item, again after each pause, and records the outcome.
func process[T any](j *job, t task[T], fn func(context.Context, T) ([]byte, error)) {
	_ = j.pauses.wait(j.stop) // beginItem notices that the job has stopped
	if !j.beginItem() {
		return
	}
	ctx, cancel := context.WithCancelCause(j.ctx)
	defer cancel(nil)
	w := j.watch(t.index, cancel)
	w.doubt = t.sent
	begun, finished := false, false
	defer func() {
		if begun && !finished {
			j.recordUndone(t.index, w)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.active--
		if !begun {
			j.skipped = true
		} else if !finished {
			j.report.Interrupted++
		}
	}()
	for pauses := 0; ; pauses++ {
		if !j.recordStart(t.index, t.identity) {
			return
		}
		begun = true
		if pauses == 0 && t.repeated || pauses == 1 && !t.repeated {
			j.count(func(r *Report) { r.Repeated++ })
		}
		w.begin()
		item := &Item{Index: t.index, IdempotencyKey: w.key, Repeated: t.repeated || pauses > 0}
		value, err := call(w.context(context.WithValue(ctx, itemKey{}, item)), j, t, fn)
		var unstored *storeError
		switch {
		case err == errExited:
			return
		case errors.As(err, &unstored):
			j.stopFor(err)
			return
		case err == nil:
			finished = j.recordDone(t.index, value)
			return
		case ctx.Err() != nil, j.caller.Err() != nil && errors.Is(err, j.caller.Err()):
			return
		case w.isLate():
			j.end(context.DeadlineExceeded)
			return
		}
		tooLong, until := w.pause(err)
		again := tooLong && pauses < maxPauses && j.mayRepeat(w)
		if !again {
			finished = j.recordFailed(t.index, err, !w.repeatable())
		}
		if tooLong && !j.beginPause(until, err) || !again || j.pauses.wait(j.stop) != nil {
			return
		}
	}
}

// mayRepeat reports whether the item that w observed may be processed again after a pause.
func (j *job) mayRepeat(w *watch) bool {
	switch j.o.Repeat {
	case RepeatAlways:
		return true
	case RepeatNever:
		return false
	}
	return w.repeatable()
}

// watch returns a watch for an item, which ends its context with cancel if what it sends cannot be
// recorded.
func (j *job) watch(index int, cancel context.CancelCauseFunc) *watch {
	w := &watch{key: j.id.key(uint64(index))}
	w.deadline, _ = j.ctx.Deadline()
	w.maySend = func() bool {
		may := j.maySend()
		if !may {
			cancel(context.Cause(j.stop))
		}
		return may
	}
	if j.checkpoint != nil {
		w.record = func(s sent) bool {
			err := j.checkpoint.send(index, s)
			if !j.check(err) {
				cancel(err)
			}
			return err == nil
		}
		w.observe = func() { w.record(sentIdempotent) }
	}
	return w
}

// beginItem counts an item that begins. It returns false if no further item may begin.
func (j *job) beginItem() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stop.Err() != nil {
		j.skipped = true
		return false
	}
	j.active++
	return true
}

// abort stops the job and ends the contexts of the items. The first of several calls decides
// on the error of the job.
func (j *job) abort(err error) {
	j.end(err)
	j.cancel(err)
}

// errExited means that fn did not return, because it panicked or called runtime.Goexit.
var errExited = errors.New("batch: the function did not return")

// call calls fn. A panic ends the job and becomes errExited.
func call[T any](ctx context.Context, j *job, t task[T], fn func(context.Context, T) ([]byte, error)) (value []byte, err error) {
	returned := false
	defer func() {
		if !returned {
			j.exit(t.index, recover())
			err = errExited
		}
	}()
	value, err = fn(ctx, t.item)
	returned = true
	return value, err
}

// exit ends the job because a function panicked with v, or called runtime.Goexit if v is
// nil.
func (j *job) exit(index int, v any) {
	j.mu.Lock()
	if v == nil {
		j.exited = true
	} else if j.panic == nil {
		j.panic = &PanicError{Index: index, Value: v, Stack: debug.Stack()}
	}
	j.mu.Unlock()
	j.abort(context.Canceled)
}

// beginPause lets no item begin until the given time. It returns false if that is too late,
// so that the job ends.
func (j *job) beginPause(until time.Time, err error) bool {
	now := time.Now()
	if until.IsZero() {
		until = now.Add(unknownPause)
	}
	if until.Sub(now) > j.o.MaxPause {
		j.end(&PauseError{Until: until, Err: err})
		return false
	}
	j.pauses.begin(now, until)
	return true
}

// count changes the report.
func (j *job) count(change func(*Report)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
}

// addError counts a failed or unknown item.
func (j *job) addError(index int, err error) {
	j.count(func(r *Report) {
		if errors.Is(err, ErrInterrupted) {
			r.Unknown++
		} else {
			r.Failed++
		}
		if len(r.Errors) < maxErrors {
			r.Errors = append(r.Errors, ItemError{index, err})
		}
	})
}

// recordStart records that an item begins. It returns false if that is not possible; the
// job then ends.
func (j *job) recordStart(index int, identity uint32) bool {
	if j.checkpoint == nil {
		return true
	}
	return j.check(j.checkpoint.start(index, identity))
}

// recordUndone records that an item was interrupted, if it is known that nothing was processed
// that must not be repeated although it was recorded that it would be sent.
func (j *job) recordUndone(index int, w *watch) {
	if j.checkpoint != nil && w.sentUnsafe() && w.repeatable() {
		j.check(j.checkpoint.undone(index))
	}
}

// recordDone records that an item is done. It returns false if that is not possible.
func (j *job) recordDone(index int, value []byte) bool {
	if j.checkpoint != nil && !j.check(j.checkpoint.done(index, value)) {
		return false
	}
	j.count(func(r *Report) { r.Done++ })
	return true
}

// recordFailed records that an item has failed. It returns false if that is not possible.
func (j *job) recordFailed(index int, err error, doubt bool) bool {
	if j.checkpoint != nil && !j.check(j.checkpoint.fail(index, err, doubt)) {
		return false
	}
	j.addError(index, err)
	j.mu.Lock()
	j.failures++
	failures := j.failures
	j.mu.Unlock()
	if n := j.o.MaxFailures; n > 0 && failures >= n {
		j.end(fmt.Errorf("%w: Options.MaxFailures is %d", ErrTooManyFailures, n))
	}
	return true
}

// check stops the job if err is not nil, and reports whether it is nil.
func (j *job) check(err error) bool {
	if err != nil {
		j.stopFor(fileError("checkpoint", err))
	}
	return err == nil
}

// result returns the report and the error of the job, or panics.
func (j *job) result() (Report, error) {
	j.mu.Lock()
	r, panicked, exited, complete := j.report, j.panic, j.exited, j.complete && !j.skipped
	j.mu.Unlock()
	if panicked != nil {
		panic(panicked)
	}
	if exited {
		runtime.Goexit()
	}
	r.Elapsed, r.Paused = time.Since(j.started), j.pauses.total(time.Now())
	slices.SortFunc(r.Errors, func(a, b ItemError) int { return a.Index - b.Index })
	err := context.Cause(j.stop)
	if complete && r.Interrupted == 0 {
		err = nil // ctx ended, or the last failure was counted, after the last item
	}
	if j.checkpoint != nil {
		if closeErr := j.checkpoint.log.Close(); err == nil {
			err = fileError("checkpoint", closeErr)
		}
	}
	if err == nil && len(r.Errors) > 0 {
		err = &itemsError{failed: r.Failed, unknown: r.Unknown, first: r.Errors[0]}
	}
	return r, err
}

// reportProgress calls Options.Progress until the returned function is called, which calls
// it for the last time.
func (j *job) reportProgress() (finish func()) {
	if j.o.Progress == nil {
		return func() {}
	}
	var reporter sync.WaitGroup
	ended := make(chan struct{})
	reporter.Go(func() {
		returned := false
		defer func() {
			if !returned {
				j.exit(-1, recover())
			}
		}()
		ticker := time.NewTicker(j.o.ProgressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				j.callProgress()
				continue
			case <-ended:
			}
			break
		}
		j.callProgress()
		returned = true
	})
	return func() {
		close(ended)
		reporter.Wait()
	}
}

func (j *job) callProgress() {
	p, _ := j.progress(time.Now())
	j.o.Progress(p)
}

// progress returns the state of the job, and the number of items per second.
func (j *job) progress(now time.Time) (p Progress, rate float64) {
	paused := j.pauses.total(now)
	j.mu.Lock()
	r := j.report
	p = Progress{
		Done: r.Done, Resumed: r.Resumed, Failed: r.Failed, Unknown: r.Unknown, Running: j.active,
		Total: j.o.Total, Elapsed: now.Sub(j.started), PausedUntil: j.pauses.pausedUntil(now),
	}
	rate = j.estimate.rate(sample{processed: r.Done - r.Resumed + j.failures, active: p.Elapsed - paused})
	j.mu.Unlock()
	p.TimeLeft = timeFor(p.Left(), rate)
	if !p.PausedUntil.IsZero() && p.TimeLeft > 0 {
		p.TimeLeft += p.PausedUntil.Sub(now)
	}
	return p, rate
}
