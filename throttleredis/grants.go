package throttleredis

import (
	"encoding/binary"
	"math"

	"github.com/heed-go/heed/throttle"
)

// What a script has to know of a grant is more than Decision.Grant holds if the limit is
// wide, or if there are several limits. A trail keeps two parts for each limit then: its
// Decision, and one whose Grant is the server's reading that it was made at.

// keep writes what has to be known of d, as p says it, to the two parts.
func keep(parts []throttle.Decision, d throttle.Decision, p part) {
	parts[0], parts[1] = d, throttle.Decision{Grant: uint64(p.now())}
}

// granted returns what a settlement of d passes to the script: the grant, which is the
// reading at which d was made or another number that the algorithm chose; and the ticks after
// which d acts, or the number of the claim if l holds.
func (l *limit) granted(d throttle.Decision) (grant, acts int64) {
	reading, rest := int64(d.Grant&(1<<readingBits-1)), int64(d.Grant>>readingBits)
	switch {
	case l.holds:
		return reading, rest
	case !l.books:
		return int64(d.Grant), 0
	}
	return reading, mulDiv(int64(max(d.Wait, 0)), l.scale, 1000) - rest
}

// grantOf adds to k what the script has to know of two parts.
func (l *limit) grantOf(k *call, parts []throttle.Decision) {
	if !l.wide {
		grant, acts := l.granted(parts[0])
		k.grant(grant, acts)
		return
	}
	d := parts[0]
	var more []byte
	for _, f := range []float64{float64(d.Wait), float64(d.ResetAfter - l.idle), math.Float64frombits(d.Grant)} {
		more = binary.LittleEndian.AppendUint64(more, math.Float64bits(f))
	}
	k.grant(int64(parts[1].Grant), more)
}
