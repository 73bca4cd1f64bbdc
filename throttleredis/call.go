package throttleredis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
)

// What a script is asked to do. They are of type any once and for all, as are the
// arguments of limits: a decision then allocates no room for them.
var (
	verbTake   any = "take"
	verbLook   any = "look"
	verbCancel any = "cancel" // give back all: the claim was not used
	verbSettle any = "settle" // take the units more than claimed, or give back those less
)

func verbOf(c throttle.Claim) any {
	if c.DryRun {
		return verbLook
	}
	return verbTake
}

// A call is the room for the keys and arguments of one run of a script.
type call struct {
	keys []string
	args []any
	size int // of args, without grants and the time
}

// newCall returns a call with the arguments of limits filled in.
func newCall(limits ...*Limiter) *call {
	k := &call{keys: make([]string, len(limits)), args: make([]any, 3)}
	for _, l := range limits {
		k.args = append(k.args, l.limit.args...)
	}
	k.size = len(k.args)
	return k
}

func (k *call) ask(verb any, n, third int64) {
	k.args = k.args[:k.size]
	k.args[0], k.args[1], k.args[2] = verb, min(n, maxUnits), third
}

// grant adds what a limit granted.
func (k *call) grant(grant uint64, more int64) {
	k.args = append(k.args, int64(grant), more)
}

// do runs a script. It returns the reply, and the local reading that belongs to it.
func (s *Store) do(ctx context.Context, script *script, k *call, now time.Time) (reply, time.Time, error) {
	if s.onLocalClock {
		if now.IsZero() {
			now = throttle.ClockOr(s.Clock).Now()
		}
		k.args = append(k.args, now.UnixMicro())
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	answer, err := script.run(ctx, s.Client, k.keys, k.args)
	if err != nil {
		return "", now, failed(err)
	}
	text, ok := answer.(string)
	if !ok || len(text) != len(k.keys)*partSize+8 && text != "" {
		return "", now, fmt.Errorf("throttleredis: the script answered %.40q: give it a server of its own, or another Prefix", fmt.Sprint(answer))
	}
	if now.IsZero() {
		now = throttle.ClockOr(s.Clock).Now()
	}
	return reply(text), now, nil
}

// ErrUncertain matches the error of a Reserve that may have taken its units all the same:
// the connection was lost, or time was up, after the script had been sent. What it took
// comes back as time gives it back.
var ErrUncertain = errors.New("throttleredis: the units may have been taken")

// failed returns err as an error of ours.
func failed(err error) error {
	var answer redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &answer):
		return fmt.Errorf("throttleredis: the server refused to run the script: %w", err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("throttleredis: the server cannot be reached: %w", err)
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return fmt.Errorf("throttleredis: no answer: %w", err)
}

// A reply is a reading of the server's clock, and a part for each limit. All numbers are
// eight bytes, little end first.
type reply string

const partSize = 6 * 8

func (r reply) now() int64      { return int64(word(string(r), 0)) }
func (r reply) part(i int) part { return part(r[8+i*partSize:][:partSize]) }

// A part is what a limit says about a claim.
type part string

func (p part) ok() bool         { return p[0] == 1 }
func (p part) wait() int64      { return int64(word(string(p), 1)) } // ticks; negative: for ever
func (p part) remaining() int64 { return int64(word(string(p), 2)) }
func (p part) reset() int64     { return int64(word(string(p), 3)) } // ticks
func (p part) now() int64       { return int64(word(string(p), 4)) } // the reading it counts from
func (p part) grant() uint64    { return uint64(math.Float64frombits(word(string(p), 5))) }

// word returns the i-th eight bytes of s.
func word(s string, i int) uint64 { return binary.LittleEndian.Uint64([]byte(s[8*i:][:8])) }

// clip returns n as far as a script can count.
func clip(n int64) int64 { return max(min(n, maxUnits), -maxUnits) }

// ticksWithin returns how many whole ticks d has.
func ticksWithin(d time.Duration, scale int64) int64 {
	if d <= 0 {
		return 0
	}
	n := mulDivUp(int64(d), scale, 1000)
	if n < maxUnits && mulSat(n, 1000) > mulSat(int64(d), scale) {
		n--
	}
	return min(n, maxUnits)
}
