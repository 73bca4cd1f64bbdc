package headers

import (
	"strconv"
	"time"
)

// readQualifiers reads the words that are left: unit, window, and which bucket.
func (r *nameParser) readQualifiers(m *nameInfo) {
	numQualifiers, at := 0, 0
	for i := range r.words[:r.n] {
		p := &r.words[i]
		switch p.class {
		case classUnit:
			m.unit = r.unitAt(i)
			m.weakSignal = m.weakSignal || p.onlyLimits && m.kind != KindNone
		case classWindow:
			m.window, m.unit = r.windowAt(i), max(m.unit, r.words[i].unit)
			m.weakSignal = m.weakSignal || m.kind != KindNone && !m.kind.isTime()
		case classScale:
			if !p.consumed && p.duration == time.Second && i > r.keywordEnd && r.isQualifier(i-1) {
				m.unit = r.text(i-1) + "_" + r.text(i) // seconds are always seconds of something
			}
		}
		if !p.consumed && (p.kind == KindLimit || p.kind == KindUsed) {
			m.weakSignal = m.weakSignal || m.kind != KindNone && m.kind != KindName // Limit-Remaining, Quota-Reset
		}
		if r.isQualifier(i) {
			m.qualifierHash = r.addHash(m.qualifierHash, i)
			numQualifiers, at = numQualifiers+1, i
		}
	}
	if numQualifiers == 1 {
		p := &r.words[at]
		m.singleQualifier = commonName(r.buf[p.lo:p.hi])
	}
}

// addHash adds part i to the hash of a bucket. Words for one window are one: what
// remains today is of the limit per day.
func (r *nameParser) addHash(h uint64, i int) uint64 {
	p := &r.words[i]
	if p.class == classWindow && p.duration > 0 {
		var buf [20]byte
		return hashWord(h, strconv.AppendInt(buf[:0], int64(p.duration), 10))
	}
	return hashWord(h, r.buf[p.lo:p.hi])
}

// isQualifier reports whether part i belongs to the name of the bucket.
func (r *nameParser) isQualifier(i int) bool {
	p := &r.words[i]
	return !p.consumed && p.class != classFiller && p.class != classRelative && p.class != classAbsolute &&
		(p.class != classKind || r.is(i, "quota"))
}

// unitAt returns the unit that part i names. What goes in and what comes out are
// two units, as they have two prices.
func (r *nameParser) unitAt(i int) string {
	u := r.words[i].unit
	for _, j := range [...]int{i - 1, i + 1} {
		switch {
		case j < 0 || j >= r.n:
		case u == "" && j < i && r.words[j].unit == "concurrent_requests":
			return "concurrent_requests"
		case u == "tokens" && (r.is(j, "input") || r.is(j, "prompt")):
			return "input_tokens"
		case u == "tokens" && (r.is(j, "output") || r.is(j, "completion") || r.is(j, "generated")):
			return "output_tokens"
		}
	}
	return u
}

// windowAt returns the window that part i names: 10-second is ten of them.
func (r *nameParser) windowAt(i int) time.Duration {
	window := r.words[i].duration
	if i > 0 {
		if p := &r.words[i-1]; p.hi-p.lo <= 4 {
			if n := smallInt(r.buf[p.lo:p.hi]); n > 0 {
				window = mulSaturating(window, n)
			}
		}
	}
	return window
}

// qualifierName returns the words of a header name that say which bucket: those
// behind the marker if there are any, else those in front.
func qualifierName(name string) string {
	var r nameParser
	var m nameInfo
	r.parse(name, &m)
	for from := r.keywordEnd; ; from = 0 {
		var out []byte
		for i := from; i < r.n; i++ {
			if r.isQualifier(i) {
				if len(out) > 0 {
					out = append(out, '-')
				}
				out = append(out, r.buf[r.words[i].lo:r.words[i].hi]...)
			}
		}
		if len(out) > 0 || from == 0 {
			return string(out)
		}
	}
}

// commonName returns the usual names of buckets without a copy, "" for others.
func commonName(b []byte) string {
	switch string(b) {
	case "requests":
		return "requests"
	case "tokens":
		return "tokens"
	case "second":
		return "second"
	case "minute":
		return "minute"
	case "hour":
		return "hour"
	case "day":
		return "day"
	}
	return ""
}
