package throttleredis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Operations of a script, as arguments of a command.
var (
	opTake   any = "take"
	opTry    any = "try" // as take, but a rejection is not counted, because the caller retries
	opDryRun any = "dryrun"
	opCancel any = "cancel" // return all units: the claim was not used
	opSettle any = "settle" // take the units used beyond the claim, or return those not used
	opLease  any = "lease"  // take, and take further units that are used later
)

// An operation is an operation as an argument of a command of go-redis, which calls MarshalBinary
// when it writes the command to a connection. It is a pointer, so that a decision does not
// allocate for it.
type operation struct {
	name    any
	bytes   [8]byte
	written atomic.Bool // since setOp was called
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (o *operation) MarshalBinary() ([]byte, error) {
	o.written.Store(true)
	return o.bytes[:copy(o.bytes[:], o.String())], nil
}

// String returns the name, for hooks that print commands.
func (o *operation) String() string { return o.name.(string) }

func opOf(c throttle.Claim) any {
	switch {
	case c.DryRun:
		return opDryRun
	case c.Waits:
		return opTry
	}
	return opTake
}

// A call is the reusable storage for one run of a script: the complete command.
type call struct {
	args      []any // the command, hash, number of keys, keys, arguments of the limits and of the claim
	operation operation
	limitArgs int // index in args of the first argument of the limits
	claimArgs int // index in args of the first argument of the claim
	calendars []calendarLimit
	decisions []throttle.Decision // two for each limit, see appendGrant
}

// A calendarLimit is a limit with windows of a calendar, whose bounds are its last arguments.
type calendarLimit struct {
	*calendar
	index int // index of the limit
	end   int // index of the argument after the bounds
}

// newCall returns a call that contains the arguments of limits.
func newCall(limits ...*Limiter) *call {
	first := 3 + len(limits)
	k := &call{args: make([]any, first), limitArgs: first, decisions: make([]throttle.Decision, 2*len(limits))}
	k.args[2] = len(limits)
	for i, l := range limits {
		k.args = append(k.args, l.limit.args...)
		if l.limit.calendar != nil {
			k.calendars = append(k.calendars, calendarLimit{l.limit.calendar, i, len(k.args)})
		}
	}
	k.claimArgs = len(k.args)
	return k
}

// sameLimits reports whether the arguments of the limits are the same. Those of one limiter differ in
// the bounds of a calendar.
func (k *call) sameLimits(o *call) bool {
	for _, c := range k.calendars {
		if !slices.Equal(k.args[c.end-4:c.end], o.args[c.end-4:c.end]) {
			return false
		}
	}
	return true
}

func (k *call) setOp(op any, n, arg int64) {
	k.operation.name = op
	k.operation.written.Store(false)
	k.args = append(k.args[:k.claimArgs], &k.operation, min(n, maxUnits), arg)
}

func (k *call) setBounds(now time.Time) {
	for _, c := range k.calendars {
		copy(k.args[c.end-4:c.end], c.boundsAt(now).args[:])
	}
}

// waitNoWindow is the wait of a reply if the server's time was in none of the windows.
const waitNoWindow = -2

// missedWindow reports whether the server's time was in none of the windows of a calendar.
// If so, it corrects the calendar for the next call.
func (k *call) missedWindow(r reply, now time.Time) (found bool) {
	for _, c := range k.calendars {
		if p := r.part(c.index); p.wait() == waitNoWindow {
			c.clockOffset.Store(p.now() - now.UnixMicro())
			found = true
		}
	}
	return found
}

var errClockJumps = errors.New("throttleredis: the server's clock leaps from window to window: set it right")

func (s *Store) now() time.Time { return throttle.ClockOr(s.Clock).Now() }

// runTimed calls run, and OnOperation with its duration.
func (s *Store) runTimed(ctx context.Context, name string, g *groups, k *call, now time.Time, size int) (reply, error) {
	if s.OnOperation == nil {
		return s.run(ctx, g, k, now, size)
	}
	start := time.Now()
	r, err := s.run(ctx, g, k, now, size)
	s.OnOperation(name, time.Since(start), err)
	return r, err
}

// run runs a script that returns size bytes. It passes now to the script only in tests.
func (s *Store) run(ctx context.Context, g *groups, k *call, now time.Time, size int) (reply, error) {
	if s.useLocalClock {
		if s.serverClock != nil {
			now = s.serverClock()
		}
		k.args = append(k.args, now.UnixMicro())
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	text, written, err := g.run(ctx, k)
	if err != nil {
		return "", wrapError(err, written)
	}
	if len(text) != size {
		return "", fmt.Errorf("throttleredis: the script answered %.40q: is something between client and server that changes answers?", text)
	}
	return reply(text), nil
}

// A reply is a reading of the server's clock, followed by a part for each limit. All
// numbers have eight bytes, in little-endian order.
type reply string

const partSize = 6 * 8

func (r reply) now() int64      { return int64(uint64At(string(r), 0)) }
func (r reply) part(i int) part { return part(r[8+i*partSize:][:partSize]) }

// A part is the encoded decision of one limit.
type part string

func (p part) ok() bool         { return p[0] == 1 }
func (p part) wait() int64      { return int64(uint64At(string(p), 1)) } // ticks; negative: forever
func (p part) remaining() int64 { return int64(uint64At(string(p), 2)) }
func (p part) reset() int64     { return int64(uint64At(string(p), 3)) } // ticks
func (p part) now() int64       { return int64(uint64At(string(p), 4)) } // the reading of the clock that the limit used

// grant returns the number that a settlement passes back. Scripts count in doubles.
func (p part) grant() uint64 { return uint64(int64(math.Float64frombits(uint64At(string(p), 5)))) }

// grantBits returns the bits of a grant that is not a whole number.
func (p part) grantBits() uint64 { return uint64At(string(p), 5) }

// uint64At returns the i-th group of eight bytes of s.
func uint64At(s string, i int) uint64 { return binary.LittleEndian.Uint64([]byte(s[8*i:][:8])) }

// clampUnits returns n, limited to what a script can count.
func clampUnits(n int64) int64 { return max(min(n, maxUnits), -maxUnits) }

// waitArg returns the argument of a script that states how long c waits: the longest wait that it
// accepts, in ticks; or, for a claim with Waits that accepts none, -1 minus the microseconds that
// it has waited.
func waitArg(c throttle.Claim, scale int64) int64 {
	if c.Waits && c.Ahead <= 0 {
		return -1 - min(micros(max(c.Waited, 0)), maxUnits)
	}
	return min(saturated.MulDivDown(int64(max(c.Ahead, 0)), scale, 1000), maxUnits)
}
