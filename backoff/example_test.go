package backoff_test

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/backoff"
)

func Example() {
	p := backoff.Exponential{Base: 100 * time.Millisecond, Jitter: backoff.None} // no jitter, so that the output is constant
	budget, clk := &backoff.Budget{}, clock.NewMock()
	budget.Deposit(clk.Now()) // the first attempt

	prev := time.Duration(0)
	for attempt := 1; attempt < 4; attempt++ {
		fmt.Printf("attempt %d failed", attempt)
		if !budget.Withdraw(clk.Now()) {
			fmt.Println(", and too many were retried lately")
			break
		}
		prev = p.Delay(attempt, prev)
		fmt.Printf(", the next one follows after %v\n", prev)
		clk.Add(prev)
	}
	// Output:
	// attempt 1 failed, the next one follows after 100ms
	// attempt 2 failed, the next one follows after 200ms
	// attempt 3 failed, the next one follows after 400ms
}

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

// The random delay is added to the wait that the server asked for.
func ExampleRetryAfterJitter() {
	f := backoff.RetryAfterJitter{Rand: func() float64 { return 0.5 }}
	for attempt := 1; attempt <= 3; attempt++ {
		fmt.Println(f.Delay(time.Minute, attempt))
	}
	fmt.Println(f.Delay(0, 1))
	// Output:
	// 1m3s
	// 1m6s
	// 1m12s
	// 750ms
}

// The server is down, so every call would be retried three times. The Budget allows a retry for
// a fifth of the calls, and one more.
func ExampleBudget() {
	b := &backoff.Budget{MinPerSecond: 0.1}
	clk := clock.NewMock()
	for range 100 {
		b.Deposit(clk.Now())
		for range 3 {
			b.Withdraw(clk.Now())
		}
		clk.Add(50 * time.Millisecond)
	}
	s := b.Snapshot(clk.Now())
	fmt.Printf("%d requests, %d retries, %d refused\n", s.Requests, s.Retries, s.Refused)
	// Output:
	// 100 requests, 21 retries, 279 refused
}

func ExampleOffsetFor() {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, device := range []string{"device-1", "device-2", "device-3"} {
		s := backoff.OffsetFor(device)
		fmt.Println(device, noon.Add(s.In(time.Minute)).Format("15:04:05.000"), s.Next(noon, time.Hour).Format("15:04:05.000"))
	}
	// Output:
	// device-1 12:00:53.262 12:53:15.740
	// device-2 12:00:00.567 12:00:34.049
	// device-3 12:00:36.318 12:36:19.098
}

// 10,000 devices send a request at 12:00 to a server that is down, and each retries 60 s later.
// The output shows the maximum number of requests within one second.
func ExampleOffset_noon() {
	const devices = 10_000
	again := backoff.Constant(time.Minute)
	for _, span := range []time.Duration{0, time.Minute} {
		first, second := map[time.Duration]int{}, map[time.Duration]int{}
		for i := range devices {
			at := backoff.OffsetFor(fmt.Sprintf("device-%d", i)).In(span)
			first[at/time.Second]++
			second[(at+again.Delay(1, 0))/time.Second]++
		}
		fmt.Printf("splay over %-4v  12:00 largest crowd in 1 s %5d, 12:01 %5d\n", span, largest(first), largest(second))
	}
	// Output:
	// splay over 0s    12:00 largest crowd in 1 s 10000, 12:01 10000
	// splay over 1m0s  12:00 largest crowd in 1 s   195, 12:01   195
}

func largest(counts map[time.Duration]int) int {
	n := 0
	for _, c := range counts {
		n = max(n, c)
	}
	return n
}
