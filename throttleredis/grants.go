package throttleredis

import (
	"encoding/binary"
	"math"

	"github.com/heed-go/heed/throttle"
)

// What a script has to know of a grant is more than Decision.Grant holds if the limit is
// wide, or if there are several limits. A trail keeps two parts for each limit then: its
// Decision, and one whose Grant is the server's reading that it was made at.

// storeGrant writes what has to be known of d, as p says it, to the two parts.
func storeGrant(parts []throttle.Decision, d throttle.Decision, p part) {
	parts[0], parts[1] = d, throttle.Decision{Grant: uint64(p.now())}
}

// grantArgs returns what a settlement of d passes to the script: the grant, which is the
// reading at which d was made or another number that the algorithm chose; and the ticks after
// which d acts, or the number of the claim if l holds.
func (l *limit) grantArgs(d throttle.Decision) (grant, acts int64) {
	reading, remaining := int64(d.Grant&(1<<readingBits-1)), int64(d.Grant>>readingBits)
	switch {
	case l.holdsUntilEnd:
		return reading, remaining
	case !l.booksAhead:
		return int64(d.Grant), 0
	}
	return reading, mulDiv(int64(max(d.Wait, 0)), l.ticksPerMicro, 1000) - remaining
}

// appendGrant adds to k what the script has to know of two parts.
func (l *limit) appendGrant(k *call, parts []throttle.Decision) {
	if !l.wideGrant {
		grant, acts := l.grantArgs(parts[0])
		k.appendGrant(grant, acts)
		return
	}
	d := parts[0]
	var more []byte
	for _, f := range []float64{float64(d.Wait), float64(d.ResetAfter - l.idleTime), math.Float64frombits(d.Grant)} {
		more = binary.LittleEndian.AppendUint64(more, math.Float64bits(f))
	}
	k.appendGrant(int64(parts[1].Grant), more)
}
