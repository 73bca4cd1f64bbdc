package backoff_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/backoff"
)

// The offset of a device is the same each day.
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
