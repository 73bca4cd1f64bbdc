package batch

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/journal"
)

var (
	// ErrInterrupted means that an item or a request was interrupted while a request that
	// must not be repeated was in flight, or an item whose effects Run cannot know (see
	// RepeatSafe). Whether it was processed is not known.
	ErrInterrupted = errors.New("batch: interrupted, and not known to be safe to repeat: its outcome is unknown")

	// ErrItems means that all items were processed and some of them failed, or that their
	// outcome is unknown. Report.Errors has the reasons.
	ErrItems = errors.New("batch: items failed")

	// ErrTooManyFailures means that Options.MaxFailures items failed.
	ErrTooManyFailures = errors.New("batch: too many items failed")

	// ErrOtherJob means that a checkpoint belongs to a job with another Options.Job or with
	// other items.
	ErrOtherJob = errors.New("batch: the checkpoint belongs to another job")

	// ErrLocked means that another Run or Outbox uses the file, in this process or another.
	ErrLocked = errors.New("batch: the file is in use")

	// ErrDamaged means that a file was not written by this package, or that a part of it
	// changed after it had been written to disk. The file is not modified.
	ErrDamaged = errors.New("batch: the file is damaged")
)

// An ItemError is the error of one item.
type ItemError struct {
	// Index is the position of the item in the sequence, starting at 0.
	Index int

	// Err is the error that the function returned, or matches ErrInterrupted. For an item
	// that failed in an earlier process it has the text of that error.
	Err error
}

// Error returns the index and the error.
func (e ItemError) Error() string { return "item " + strconv.Itoa(e.Index) + ": " + e.Err.Error() }

// Unwrap returns e.Err.
func (e ItemError) Unwrap() error { return e.Err }

// An itemsError is the error of Run if some items failed.
type itemsError struct {
	failed, unknown int
	first           ItemError
}

func (e *itemsError) Error() string {
	return fmt.Sprintf("batch: %d items failed, and the outcome of %d is unknown; the first: %v", e.failed, e.unknown, e.first)
}

func (e *itemsError) Unwrap() []error { return []error{ErrItems, e.first} }

// A PauseError means that Run would have to pause for longer than Options.MaxPause. The
// items that are left were not processed.
type PauseError struct {
	// Until is the time at which the server accepts requests again, as far as known.
	Until time.Time

	// Err is the error of the item whose request the server did not admit.
	Err error
}

// Error returns a message with the time and the error of the item.
func (e *PauseError) Error() string {
	return "batch: the job would pause until " + e.Until.Format(time.RFC3339) + ", longer than Options.MaxPause: " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *PauseError) Unwrap() error { return e.Err }

// A PanicError is the value with which Run panics if a function that it called panicked.
type PanicError struct {
	// Index is the position of the item, or -1 if Options.Progress panicked.
	Index int

	// Value is the value of the panic.
	Value any

	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error returns a message with the value and the stack.
func (e *PanicError) Error() string {
	where := "Options.Progress"
	if e.Index >= 0 {
		where = "item " + strconv.Itoa(e.Index)
	}
	return fmt.Sprintf("batch: panic in %s: %v\n\n%s", where, e.Value, e.Stack)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// fileError adds ErrLocked or ErrDamaged to an error of package journal.
func fileError(what string, err error) error {
	var corrupt *journal.CorruptError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrLocked):
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, journal.ErrNotJournal), errors.As(err, &corrupt):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return fmt.Errorf("batch: %s: %w", what, err)
}
