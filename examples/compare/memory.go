package main

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// clients is the number of clients whose memory is measured together; it is so large that
// other memory on the heap is negligible.
const clients = 4000

// bytesPerClient returns by how many bytes the heap grows per client that uses up its
// limit, including its key of 12 bytes if the limiter stores it.
func bytesPerClient(a algorithm) string {
	keys := make([]string, clients)
	for i := range keys {
		keys[i] = "client " + strconv.Itoa(10000+i)
	}
	before := heap()
	l := a.limiterOf(clients)
	for _, key := range keys {
		exhaust(l, key)
	}
	grown := heap() - before
	runtime.KeepAlive(l)
	runtime.KeepAlive(keys)
	return strconv.FormatInt(max(grown+clients/2, 0)/clients, 10)
}

// limiterOf returns a limiter for the given number of clients.
func (a algorithm) limiterOf(clients int) throttle.Limiter {
	if a.many != nil {
		return a.many(newClock(), clients)
	}
	c := newClock()
	return &keyed.Limiter{New: func(string) throttle.Limiter { return a.one(c) }, Max: clients, Clock: c}
}

// exhaust claims units until l has rejected a claim, so that limiters that store more about
// a busy client have done so.
func exhaust(l throttle.Limiter, key string) {
	for i := range limit.Count + 1 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		d, err := throttle.ReserveAhead(context.Background(), l, throttle.Claim{Key: key, Now: at}, maxWait)
		if err != nil || !d.OK {
			return
		}
	}
}

// heap returns the number of bytes in use on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees objects in pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
