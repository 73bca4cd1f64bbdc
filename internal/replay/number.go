package replay

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A rational is a number in a trace, such as "22/7".
type rational struct{ big.Rat }

func (r *rational) UnmarshalText(text []byte) error {
	if _, ok := r.SetString(string(text)); !ok {
		return fmt.Errorf("%q is not a rational number", text)
	}
	return nil
}

// floor returns r rounded down.
func (r *rational) floor() int64 {
	// Euclidean division rounds down, because the denominator is positive
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

// seconds returns r seconds, rounded up to whole nanoseconds.
func (r *rational) seconds() time.Duration {
	var ns rational
	ns.Mul(&r.Rat, big.NewRat(-1e9, 1))
	return time.Duration(-ns.floor())
}

// perSecond returns the limit of r units per second.
func (r *rational) perSecond(burst int64) throttle.Limit {
	return throttle.Limit{Count: r.Num().Int64(), Per: time.Duration(r.Denom().Int64()) * time.Second, Burst: burst}
}

// A decimal is a rate in a trace, or "Inf".
type decimal float64

func (d *decimal) UnmarshalJSON(text []byte) error {
	if string(text) == `"Inf"` {
		*d = decimal(math.Inf(1))
		return nil
	}
	_, err := fmt.Sscan(string(text), (*float64)(d))
	return err
}

func (d decimal) infinite() bool { return math.IsInf(float64(d), 1) }

// farFuture is longer than any trace.
const farFuture = 36 * 365 * 24 * time.Hour

// A clock returns the time that it was set to.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time                       { return c.now }
func (c *clock) After(time.Duration) <-chan time.Time { return nil }
