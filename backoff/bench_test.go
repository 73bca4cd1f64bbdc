package backoff

import (
	"math/rand/v2"
	"testing"
	"time"
)

// sinkDelay and sinkOK receive results, so that the compiler cannot remove the computation.
var (
	sinkDelay time.Duration
	sinkOK    bool
)

// BenchmarkUint64N is the baseline for the other benchmarks.
func BenchmarkUint64N(b *testing.B) {
	n := uint64(0)
	for i := range b.N {
		n += rand.Uint64N(uint64(defaultBase) << (i & 7))
	}
	sinkDelay = time.Duration(n)
}

func BenchmarkExponential(b *testing.B) {
	var e Exponential
	n := time.Duration(0)
	for i := range b.N {
		n += e.Delay(i&7+1, 0)
	}
	sinkDelay = n
}

func BenchmarkPolicy(b *testing.B) {
	for _, p := range []struct {
		name   string
		policy Policy
	}{
		{"full", Exponential{}},
		{"fullPointer", &Exponential{}},
		{"equal", Exponential{Jitter: Equal}},
		{"decorrelated", Exponential{Jitter: Decorrelated}},
		{"plusMinus", Exponential{Jitter: PlusMinus}},
		{"factor1.5", Exponential{Factor: 1.5}},
		{"linear", Linear{}},
	} {
		b.Run(p.name, func(b *testing.B) {
			n := time.Duration(0)
			for i := range b.N {
				n += p.policy.Delay(i&7+1, time.Second)
			}
			sinkDelay = n
		})
	}
}

func BenchmarkRetryAfterJitter(b *testing.B) {
	var f RetryAfterJitter
	for i := range b.N {
		sinkDelay += f.Delay(time.Second, i&7+1)
	}
}

func BenchmarkBudget_deposit(b *testing.B) {
	var budget Budget
	now := time.Now()
	for b.Loop() {
		budget.Deposit(now, 1)
	}
}

func BenchmarkBudget_withdraw(b *testing.B) {
	var budget Budget
	now := time.Now()
	for b.Loop() {
		sinkOK = budget.Withdraw(now)
	}
}

func BenchmarkOffsetFor(b *testing.B) {
	for b.Loop() {
		sinkDelay += OffsetFor("device-0123456789").In(time.Minute)
	}
}
