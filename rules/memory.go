package rules

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/heed-go/heed/throttle"
)

const (
	// maxTableBytes bounds the memory of the keys of a limit without max_keys.
	maxTableBytes = 256 << 20

	defaultMaxKeys  = 1 << 16
	bytesPerKey     = 600 // of a key and its limiter, without what depends on the numbers of the limit
	bytesPerHard    = 400 // of a second limiter for Limit.Hard
	bytesPerEntry   = 16  // of a claim in a sliding log, which has space for a power of 2
	bytesPerPart    = 9   // of a sub-window in a sliding counter, with what allocation adds
	bytesPerRunning = 40  // of a claim in progress in a limit on concurrency
)

// bytesPerKey returns the maximum number of bytes that a key of l needs, which is that of a key
// that has used all of its limit.
func (l *Limit) bytesPerKey() int64 {
	most := int64(0)
	for _, s := range l.allSpecs() {
		n := specBytes(s[0]) + specBytes(s[1])
		if s[1] != nil {
			n += bytesPerHard
		}
		most = max(most, n)
	}
	return bytesPerKey + most
}

// specBytes returns the bytes of a limiter that depend on the numbers of s.
func specBytes(s Spec) int64 {
	n, size := int64(0), int64(0)
	switch s := s.(type) {
	case throttle.SlidingLogConfig:
		n, size = s.Limit.Count, bytesPerEntry
		if n <= math.MaxInt64/4 {
			n = 1 << bits.Len64(uint64(n-1))
		}
	case throttle.SlidingCounterConfig:
		n, size = int64(s.Parts), bytesPerPart
	case throttle.ConcurrencyConfig:
		n, size = s.Count, bytesPerRunning
	}
	return min(n, math.MaxInt64/8/bytesPerRunning) * size
}

// maxKeys returns the maximum number of keys of l with a limiter of their own. See
// keyed.Limiter.
func (l *Limit) maxKeys() int {
	if l.MaxKeys > 0 {
		return l.MaxKeys
	}
	return int(min(max(maxTableBytes/l.bytesPerKey(), 1), defaultMaxKeys))
}

// addressPart returns the index of the part of the keys of l that is the address of the client, as
// far as clients cannot choose it, or -1 if there is none.
func (p *parsedFile) addressPart(l *Limit) int {
	return slices.IndexFunc(l.keys, func(name string) bool {
		s := p.byName[name]
		return s != nil && (s.origin == "request remote_address" || name == "remote_address" && (s.origin == "" || s.origin == fromProgram))
	})
}

// clientAddr returns the address of the client in a key of l. It is the Addr of a keyed.Limiter.
func (l *Limit) clientAddr(key string) netip.Addr {
	if l.address < 0 {
		return netip.Addr{}
	}
	text := key
	if len(l.keys) > 1 {
		for range l.address + 1 {
			text, key, _ = cutPart(key)
		}
	}
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "ip:"), "/")
	a, _ := netip.ParseAddr(text)
	return a
}
