package routes

import (
	"hash/maphash"
	"math/bits"
	"net/http"
	"sync/atomic"
)

const (
	maxHistories = 32 // routes whose responses are remembered
	minHealthy   = 10 // of the latest 20 responses of a route that must be successful

	historyMask = 1<<20 - 1 // the bits of a word that are responses
)

// Histories are the kinds of the latest 20 responses of each of the latest 32 routes of one
// endpoint. A 403 mostly means that a permission is missing, and is final. But if requests of the
// same route have just succeeded, it is probably temporary: a limit, or a fault of one replica. A
// route is healthy if at least 10 of its latest 20 responses were successful, with a status of 2xx.
//
// Each response is recorded, also those of requests that no quota admits. So there is no lock, and
// a response like all those before it changes nothing:
//
//	┌────────── 44 bits ──────────┬──────────── 20 bits ────────────┐
//	│ of the hash of the route    │ 1: 2xx; the latest is the lowest │
//	└─────────────────────────────┴──────────────────────────────────┘
//
// A route begins with its first success, in place of the route that began first. The zero
// Histories are empty.
type Histories struct {
	words [maxHistories]atomic.Uint64
	begun atomic.Uint32 // routes that have begun; the next one has index begun % maxHistories
}

// Record records the status of the response to req in the history of its route. It reports whether the route
// was healthy before. seed is the same for all calls.
func (h *Histories) Record(seed maphash.Seed, req *http.Request, status int) (healthy bool) {
	var buf [Max]byte
	route, success := maphash.Bytes(seed, Append(buf[:0], req))&^historyMask, uint64(0)
	if status/100 == 2 {
		success = 1
	}
	for i := range h.words {
		for {
			before := h.words[i].Load()
			if before&^historyMask != route {
				break
			}
			after := route | (before<<1|success)&historyMask
			if after == before || h.words[i].CompareAndSwap(before, after) {
				return bits.OnesCount64(before&historyMask) >= minHealthy
			}
		}
	}
	if success == 1 {
		h.words[(h.begun.Add(1)-1)%maxHistories].Store(route | 1)
	}
	return false
}
