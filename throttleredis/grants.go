package throttleredis

import (
	"encoding/binary"
	"math"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// If a limit is wide, or if there are several limits, a script needs more data about a
// grant than Decision.Grant can hold. throttle.SubGrants then stores two parts for each
// limit: its Decision, and a Decision whose Grant is the server's reading at which the
// claim was granted.

// storeGrant stores in the two parts what a settlement of d needs. p is the encoded
// decision.
func storeGrant(parts []throttle.Decision, d throttle.Decision, p part) {
	parts[0], parts[1] = d, throttle.Decision{Grant: uint64(p.now())}
}

// grantArgs returns the two numbers that a settlement of d passes to the script. The first
// is the grant: the reading at which d was made, or another number that the algorithm
// chose. The second is the number of ticks after which d acts, or the number of the claim
// if l holds units until the end.
func (l *limit) grantArgs(d throttle.Decision) (grant, acts int64) {
	reading, remaining := int64(d.Grant&(1<<readingBits-1)), int64(d.Grant>>readingBits)
	switch {
	case l.holdsUntilEnd:
		return reading, remaining
	case !l.scaledGrant:
		return int64(d.Grant), 0
	}
	return reading, saturated.MulDivDown(int64(max(d.Wait, 0)), l.ticksPerMicro, 1000) - remaining
}

// appendGrant appends to k what the script needs of the two parts.
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
