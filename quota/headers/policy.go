package headers

import (
	"time"

	"github.com/heed-go/heed/internal/sfv"
)

// A policy is what RateLimit-Policy says of one limit: "name";q=100;w=60 since
// draft-08, 100;w=60 before.
type policy struct {
	name    string
	unit    string
	limit   int64
	window  time.Duration
	applied bool // it completed a limit

	partition string
}

// applyPolicies gives each limit its policy. Policies with a name that no limit
// has are limits of their own, of which the state is not told; without names they
// are comments, save where nothing else is said.
func (p *parser) applyPolicies(l *builders) {
	for i := range l.policies {
		var all [maxEntries]policy
		n := parsePolicies(l.policies[i].value, &all)
		numStated := len(l.limits)
		for j := range all[:n] {
			l.applyPolicy(&all[j], n)
		}
		for j := range all[:n] {
			if q := &all[j]; !q.applied && (q.name != "" || numStated == 0) {
				l.add(q.builder())
			}
		}
	}
}

func (q *policy) builder() limitBuilder {
	d := limitBuilder{header: "Ratelimit-Policy", structured: true}
	d.Name, d.Unit, d.Window = q.name, q.unit, q.window
	d.Limit.Limit, d.HasLimit = q.limit, true
	d.PartitionKey = q.partition
	return d
}

// applyPolicy looks for the limit that q, one of n policies, is about: the one with its name; else,
// where one of the two has no name, the one of its size, or the only one.
func (l *builders) applyPolicy(q *policy, n int) {
	for i := range l.limits {
		if d := &l.limits[i]; q.name != "" && d.Name == q.name && q.samePartition(d) {
			d.applyPolicy(q)
			return
		}
	}
	for i := range l.limits {
		d := &l.limits[i]
		if q.mayApply(d) && d.HasLimit && d.Limit.Limit == q.limit && d.Window == 0 {
			d.applyPolicy(q)
			return
		}
	}
	if len(l.limits) == 1 && q.mayApply(&l.limits[0]) && !l.limits[0].HasLimit && (n == 1 || q.name == "") {
		l.limits[0].applyPolicy(q)
	}
}

// mayApply reports whether q can be about d, going by the names: one of the two has none.
func (q *policy) mayApply(d *limitBuilder) bool {
	return (q.name == "" || d.Name == "") && q.samePartition(d)
}

// samePartition reports whether q and d are not about different partitions.
func (q *policy) samePartition(d *limitBuilder) bool {
	return q.partition == "" || d.PartitionKey == "" || q.partition == d.PartitionKey
}

func (d *limitBuilder) applyPolicy(q *policy) {
	q.applied = true
	d.Limit.Limit, d.HasLimit = q.limit, true
	if q.window > 0 {
		d.Window = q.window
	}
	if q.unit != "" {
		d.Unit = q.unit
	}
	if d.Name == "" {
		d.Name = q.name
	}
	if d.PartitionKey == "" {
		d.PartitionKey = q.partition
	}
}

// parsePolicies reads the header. A mistake anywhere voids all of it, and so does a number that is
// not what the draft allows.
func parsePolicies(v string, out *[maxEntries]policy) (n int) {
	r := sfv.NewParser(v, true)
	var it sfv.Item
	for n < len(out) && r.Next(&it) {
		ok, valid := out[n].parse(&it)
		if !valid {
			return 0
		}
		if ok {
			n++
		}
	}
	if r.Malformed() {
		return 0
	}
	return n
}

// parse reads one item. It is not ok if it has no count, and not valid if a number is malformed.
func (q *policy) parse(it *sfv.Item) (ok, valid bool) {
	var limit decimal
	*q = policy{}
	if it.Value.Kind == sfv.Number {
		limit, ok = intValue(it.Value)
		valid = ok
	} else {
		q.name = it.Value.String()
		limit, ok, valid = intParam(it, "q")
	}
	q.limit = limit.whole
	for _, key := range [...]string{"w", "window"} {
		w, has, whole := intParam(it, key)
		if valid = valid && whole; has {
			q.window = w.duration(time.Second)
		}
	}
	if qu, ok := it.Param("qu"); ok && (qu.Kind == sfv.String || qu.Kind == sfv.Token) {
		q.unit = normalizeUnit(qu.String())
	}
	if name, ok := it.Param("name"); ok && q.name == "" {
		q.name = name.String()
	}
	q.partition = partitionKey(it)
	return ok, valid
}

// normalizeUnit returns a unit in our spelling: "content-bytes" is content_bytes, and
// requests are "".
func normalizeUnit(s string) string {
	if s == "requests" {
		return ""
	}
	b := []byte(truncate(s))
	for i, c := range b {
		if c == '-' || c == ' ' {
			b[i] = '_'
		}
	}
	return string(toLower(b, string(b)))
}
