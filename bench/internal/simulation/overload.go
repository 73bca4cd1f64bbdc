package simulation

import "time"

// Overload returns 100 calls a second for 20 s, with deadlines of 5 s, after a burst of 100 calls, to a
// server that needs seven eighths of its capacity for them. Beyond capacity requests in flight it becomes
// slower, and fault applies. Latencies have a noise.
func Overload(capacity int, fault Fault, noise float64) Scenario {
	const interval = 10 * time.Millisecond
	fault.Above = capacity
	return Scenario{
		Loads: []Load{{Calls: 2000, Burst: 100, Interval: interval, Deadline: 5 * time.Second}},
		Site:  Site{Latency: Latency{Mean: interval * time.Duration(capacity) * 7 / 8, Noise: noise}, Capacity: capacity, Faults: []Fault{fault}},
	}
}
