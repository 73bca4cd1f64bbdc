package backoff_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/heed-go/heed/backoff"
)

// The ranges of the delays after each attempt, from 0 to 30 s. Those of Decorrelated are for
// the longest previous delays.
func ExampleExponential_plot() {
	for _, j := range []backoff.Jitter{backoff.Full, backoff.None, backoff.Equal, backoff.Decorrelated, backoff.PlusMinus} {
		fmt.Printf("%v\n", j)
		low := backoff.Exponential{Base: time.Second, Jitter: j, Rand: func() float64 { return 0 }}
		high := low
		high.Rand = func() float64 { return math.Nextafter(1, 0) }
		prev := time.Duration(0)
		for attempt := 1; attempt <= 7; attempt++ {
			from, to := low.Delay(attempt, prev), high.Delay(attempt, prev)
			prev = to
			fmt.Printf("  %d |%s\n", attempt, drawBar(from, to))
		}
	}
	// Output:
	// full
	//   1 |[=]
	//   2 |[===]
	//   3 |[=======]
	//   4 |[===============]
	//   5 |[===============================]
	//   6 |[===========================================================]
	//   7 |[===========================================================]
	// none
	//   1 |  +
	//   2 |    +
	//   3 |        +
	//   4 |                +
	//   5 |                                +
	//   6 |                                                            +
	//   7 |                                                            +
	// equal
	//   1 | []
	//   2 |  [=]
	//   3 |    [===]
	//   4 |        [=======]
	//   5 |                [===============]
	//   6 |                              [=============================]
	//   7 |                              [=============================]
	// decorrelated
	//   1 |  [===]
	//   2 |  [===============]
	//   3 |  [===================================================]
	//   4 |  [=========================================================]
	//   5 |  [=========================================================]
	//   6 |  [=========================================================]
	//   7 |  [=========================================================]
	// plusminus
	//   1 | [=]
	//   2 |  [===]
	//   3 |    [=======]
	//   4 |        [===============]
	//   5 |                [===============================]
	//   6 |                    [=======================================]
	//   7 |                    [=======================================]
}

// drawBar draws the range between two delays, with one column per half second.
func drawBar(from, to time.Duration) string {
	column := func(d time.Duration) int { return int((d + time.Second/4) / (time.Second / 2)) }
	a, b := column(from), column(to)
	if a == b {
		return strings.Repeat(" ", a) + "+"
	}
	return strings.Repeat(" ", a) + "[" + strings.Repeat("=", max(b-a-1, 0)) + "]"
}
