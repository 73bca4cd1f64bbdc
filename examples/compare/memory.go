package main

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// clients is how many are weighed at once, which makes what else is on the heap too
// little to notice.
const clients = 4000

// bytesPerClient returns by how many bytes the heap grows for each client that uses its limit
// up, with its key of 12 bytes where a limiter has to keep that.
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

// limiterOf returns a limiter of so many clients.
func (a algorithm) limiterOf(clients int) throttle.Limiter {
	if a.many != nil {
		return a.many(newClock(), clients)
	}
	c := newClock()
	return &keyed.Limiter{New: func(string) throttle.Limiter { return a.one(c) }, Max: clients, Clock: c}
}

// exhaust asks until l has refused once, so that those who remember more of a busy
// client have done so.
func exhaust(l throttle.Limiter, key string) {
	for i := range limit.Count + 1 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		d, err := l.Reserve(context.Background(), throttle.Claim{Key: key, Now: at, MaxWait: maxWait})
		if err != nil || !d.OK {
			return
		}
	}
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
