package quota

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A countingWaker counts the calls of Wake, and is alive until gone is set.
type countingWaker struct {
	woken int
	gone  bool
}

func (w *countingWaker) Wake()       { w.woken++ }
func (w *countingWaker) Alive() bool { return !w.gone }

// wakeFuncs is a type whose values cannot be compared.
type wakeFuncs []func()

func (w wakeFuncs) Wake() { w[0]() }

func TestTracker_notifyRegistersOnce(t *testing.T) {
	var tr Tracker
	w, calls := &countingWaker{}, 0
	tr.Notify(nil)
	tr.Notify(w)
	tr.Notify(w)
	tr.Notify(wakeFuncs{func() { calls++ }})
	tr.Notify(wakeFuncs{func() { calls++; tr.Notify(w) }}) // Wake runs without a lock
	tr.wake()
	require.Equal(t, 1, w.woken)
	require.Equal(t, 2, calls)
}

func TestTracker_notifyDropsWakersThatAreNotAlive(t *testing.T) {
	var tr Tracker
	for range 100 {
		w := &countingWaker{}
		tr.Notify(w)
		w.gone = true
	}
	require.Len(t, *tr.wakers.Load(), 1)
}
