package throttle

import (
	"math"
	"sort"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// partCounts are the units taken in the latest sub-windows, as running totals: the units of
// several sub-windows are the difference of two totals, so no decision adds up the parts.
type partCounts struct {
	per   int64
	parts int64
	part  int64 // sub-window of the latest add, counted from the epoch
	shift int64 // part + shift is a number that no sub-window of another length has had

	// Totals may wrap around; their differences do not.
	total  int64   // running total of all units
	totals []int64 // totals[i mod parts]: total at the start of part i, for the latest parts
}

func (p *partCounts) used(now int64) int64 { return p.sum(p.partAt(now)) }

func (p *partCounts) add(units, now int64) uint64 {
	part := p.partAt(now)
	p.advance(part)
	p.total += units
	return uint64(part + p.shift)
}

// adjust removes at most what was taken in the sub-window.
func (p *partCounts) adjust(grant uint64, n int64) {
	part := int64(grant) - p.shift
	if part > p.part || part <= p.part-p.parts {
		return
	}
	own := p.totalBefore(part+1) - p.totalBefore(part)
	n = min(max(n, -own), math.MaxInt64-p.sum(p.part))
	p.total += n
	for i := part + 1; i <= p.part; i++ {
		p.totals[p.ringIndex(i)] += n
	}
}

func (p *partCounts) setPer(per, now int64) {
	part := p.partAt(now)
	sum, id := p.sum(part), part+p.shift
	p.per, p.part, p.total = per, ticks.Never, 0
	p.advance(p.partAt(now))
	p.total, p.shift = sum, id+p.parts-p.part
}

// advance makes part the current sub-window.
func (p *partCounts) advance(part int64) {
	for i := max(p.part, part-p.parts) + 1; i <= part; i++ {
		p.totals[p.ringIndex(i)] = p.total
	}
	p.part = part
}

// sum returns the units that count in part, which must not be before the current one.
func (p *partCounts) sum(part int64) int64 { return p.total - p.totalBefore(part-p.parts+1) }

// totalBefore returns the total at the start of part, or the current total if part has not
// started.
func (p *partCounts) totalBefore(part int64) int64 {
	if part > p.part {
		return p.total
	}
	return p.totals[p.ringIndex(part)]
}

func (p *partCounts) waitUntilAtMost(units, now int64) time.Duration {
	next, last := p.partAt(now)+1, p.part+p.parts // at the start of last all units have expired
	next += int64(sort.Search(int(last-next), func(i int) bool { return p.sum(next+int64(i)) <= units }))
	return time.Duration(ticks.Sub(ticks.MulDivCeil(next, p.per, p.parts), now))
}

func (p *partCounts) partAt(now int64) int64 { return ticks.MulDivDown(now, p.parts, p.per) }

func (p *partCounts) ringIndex(part int64) int { return int((part%p.parts + p.parts) % p.parts) }
