package quota

import "time"

// A policy is what RateLimit-Policy says of one limit: "name";q=100;w=60 since
// draft-08, 100;w=60 before.
type policy struct {
	name   string
	unit   string
	limit  int64
	window time.Duration
	spent  bool // it completed a limit
}

// applyPolicies gives each limit its policy. Policies with a name that no limit
// has are limits of their own, of which the state is not told; without names they
// are comments, save where nothing else is said.
func (p *parser) applyPolicies(l *ledger) {
	for i := range l.policies {
		var all [maxEntries]policy
		n := readPolicies(l.policies[i].value, &all)
		told := len(l.list)
		for j := range all[:n] {
			l.apply(&all[j], n)
		}
		for j := range all[:n] {
			if q := &all[j]; !q.spent && (q.name != "" || told == 0) {
				l.add(q.draft())
			}
		}
	}
}

func (q *policy) draft() draft {
	d := draft{header: "Ratelimit-Policy", state: true}
	d.Name, d.Unit, d.Window = q.name, q.unit, q.window
	d.Limit.Limit, d.HasLimit = q.limit, true
	return d
}

// apply looks for the limit that q, one of n policies, is about: the one with its
// name, else the one of its size, else the only one.
func (l *ledger) apply(q *policy, n int) {
	for i := range l.list {
		if d := &l.list[i]; q.name != "" && d.Name == q.name {
			d.complete(q)
			return
		}
	}
	for i := range l.list {
		if d := &l.list[i]; d.HasLimit && d.Limit.Limit == q.limit && d.Window == 0 {
			d.complete(q)
			return
		}
	}
	if len(l.list) == 1 && !l.list[0].HasLimit && (n == 1 || q.name == "") {
		l.list[0].complete(q)
	}
}

func (d *draft) complete(q *policy) {
	q.spent = true
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
}

// readPolicies reads the header. A mistake anywhere voids all of it.
func readPolicies(v string, out *[maxEntries]policy) (n int) {
	r := sfReader{s: v, lenient: true}
	var it sfItem
	for n < len(out) && r.next(&it) {
		if out[n].read(&it) {
			n++
		}
	}
	if r.bad {
		return 0
	}
	return n
}

func (q *policy) read(it *sfItem) bool {
	var limit number
	var ok bool
	*q = policy{}
	if it.value.kind == sfNumber {
		limit, ok = parseNumber(it.value.text)
		ok = ok && !limit.negative
	} else {
		q.name = it.value.String()
		limit, ok = it.number("q")
	}
	q.limit = limit.whole
	for _, key := range [...]string{"w", "window"} {
		if w, ok := it.number(key); ok {
			q.window = w.times(time.Second)
		}
	}
	if qu, ok := it.param("qu"); ok && (qu.kind == sfString || qu.kind == sfToken) {
		q.unit = unitName(qu.String())
	}
	if name, ok := it.param("name"); ok && q.name == "" {
		q.name = name.String()
	}
	return ok
}

// unitName returns a unit in our spelling: "content-bytes" is content_bytes, and
// requests are "".
func unitName(s string) string {
	if s == "requests" || len(s) > maxName {
		return ""
	}
	b := []byte(s)
	for i, c := range b {
		if c == '-' || c == ' ' {
			b[i] = '_'
		}
	}
	return string(lower(b, string(b)))
}
