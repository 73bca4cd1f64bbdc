package throttleredis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// An operation of a script.
type operation byte

const (
	opTake   operation = 't'
	opTry    operation = 'r' // as take, but a rejection is not counted, because the caller retries
	opDryRun operation = 'd'
	opSettle operation = 's' // take the units used beyond the claim, or return those not used
	opCancel operation = 'c' // return all units: the claim was not used
	opLease  operation = 'l' // take, and take further units that are used later
)

func opOf(c throttle.Claim) operation {
	switch {
	case c.DryRun:
		return opDryRun
	case c.Waits:
		return opTry
	}
	return opTake
}

// Bits of the first byte of an encoded claim, whose second byte is the number of equal claims.
const (
	anotherKey = 1 // than that of the claim before
	hasTime    = 2
)

// A claimArg is an encoded claim, or several, as an argument of a command of go-redis, which calls
// MarshalBinary when it writes the command to a connection: see lua/head.lua.
type claimArg struct {
	bytes   []byte
	written atomic.Bool // since bytes were set
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *claimArg) MarshalBinary() ([]byte, error) {
	a.written.Store(true)
	return a.bytes, nil
}

// String returns the encoded claims, for hooks that print commands.
func (a *claimArg) String() string { return fmt.Sprintf("%x", a.bytes) }

// append appends numbers.
func (a *claimArg) append(numbers ...float64) { a.bytes = appendFloats(a.bytes, numbers...) }

func appendFloats(b []byte, numbers ...float64) []byte {
	for _, f := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// A call is the reusable storage for one run of a script.
type call struct {
	key       string // of the claim
	of        []*Limiter
	limits    []byte // their arguments
	claim     claimArg
	args      []any // the storage of command
	limitsArg any   // limits
	calendars []calendarLimit
	decisions []throttle.Decision // two for each limit, see appendGrant

	// Of a call that waits for others or travels with them, see groups:
	ctx       context.Context
	size      int           // of the reply
	roundTrip *roundTrip    // nil: it waits
	done      chan struct{} // receives when reply and err are set
	reply     string
	err       error
	abandoned bool // its caller did not wait for the reply, so that it must not be reused
}

// A calendarLimit is a limit with windows of a calendar, whose bounds are its last arguments.
type calendarLimit struct {
	*calendar
	index int // index of the limit
	end   int // index in call.limits of what follows the bounds
}

func newCall(limits ...*Limiter) *call {
	k := &call{of: limits, args: make([]any, 3, 3+len(limits)+2), decisions: make([]throttle.Decision, 2*len(limits)), done: make(chan struct{}, 1)}
	k.args[2] = len(limits)
	for i, l := range limits {
		k.limits = appendFloats(k.limits, l.limit.args...)
		if l.limit.calendar != nil {
			k.calendars = append(k.calendars, calendarLimit{l.limit.calendar, i, len(k.limits)})
		}
	}
	k.limitsArg = k.limits
	return k
}

// floats returns whole numbers as arguments of a limit.
func floats(ns ...int64) []float64 {
	fs := make([]float64, len(ns))
	for i, n := range ns {
		fs[i] = float64(n)
	}
	return fs
}

// command returns the command for k alone, which is valid until the next call of command.
func (k *call) command() []any {
	k.args = append(k.appendKeys(k.args[:3]), k.limitsArg, &k.claim)
	return k.args
}

// appendKeys appends the key of each limit.
func (k *call) appendKeys(args []any) []any {
	tag := hashTag(k.key)
	for _, l := range k.of {
		args = append(args, l.keyPrefix+tag+l.keySuffix)
	}
	return args
}

func (k *call) setOp(op operation, n, arg int64) {
	k.claim.written.Store(false)
	k.claim.bytes = append(k.claim.bytes[:0], anotherKey, 1, byte(op))
	k.claim.append(float64(min(n, maxUnits)), float64(arg))
}

func (k *call) setBounds(now time.Time) {
	for _, c := range k.calendars {
		appendFloats(k.limits[:c.end-32], c.boundsAt(now)[:]...)
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
		k.claim.bytes[0] |= hasTime
		k.claim.append(float64(now.UnixMicro()))
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	k.size = size
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
// numbers are doubles, in which scripts count, in little-endian order.
type reply string

const partSize = 6 * 8

func (r reply) now() int64      { return intAt(string(r), 0) }
func (r reply) part(i int) part { return part(r[8+i*partSize:][:partSize]) }

// A part is the encoded decision of one limit.
type part string

func (p part) ok() bool         { return intAt(string(p), 0) == 1 }
func (p part) wait() int64      { return intAt(string(p), 1) } // ticks; negative: forever
func (p part) remaining() int64 { return intAt(string(p), 2) }
func (p part) reset() int64     { return intAt(string(p), 3) } // ticks
func (p part) now() int64       { return intAt(string(p), 4) } // the reading of the clock that the limit used

// grant returns the number that a settlement passes back.
func (p part) grant() uint64 { return uint64(intAt(string(p), 5)) }

// grantBits returns the bits of a grant that is not a whole number.
func (p part) grantBits() uint64 { return uint64At(string(p), 5) }

// intAt returns the i-th number of s.
func intAt(s string, i int) int64 { return int64(math.Float64frombits(uint64At(s, i))) }

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
