package quota

import (
	"strconv"
	"time"
)

// readQualifiers reads the words that are left: unit, window, and which bucket.
func (r *nameReader) readQualifiers(m *meaning) {
	named, at := 0, 0
	for i := range r.parts[:r.n] {
		p := &r.parts[i]
		switch p.class {
		case unitWord:
			m.unit = r.unit(i)
			m.hinted = m.hinted || p.sure && m.field != FieldNone
		case windowWord:
			m.span, m.unit = r.span(i), max(m.unit, r.parts[i].unit)
			m.hinted = m.hinted || m.field != FieldNone && !m.field.timed()
		case scaleWord:
			if !p.spent && p.span == time.Second && i > r.mark && r.names(i-1) {
				m.unit = r.text(i-1) + "_" + r.text(i) // seconds are always seconds of something
			}
		}
		if !p.spent && (p.field == FieldLimit || p.field == FieldUsed) {
			m.hinted = m.hinted || m.field != FieldNone && m.field != FieldName // Limit-Remaining, Quota-Reset
		}
		if r.names(i) {
			m.bucket = r.hash(m.bucket, i)
			named, at = named+1, i
		}
	}
	if named == 1 {
		p := &r.parts[at]
		m.single = intern(r.buf[p.lo:p.hi])
	}
}

// hash adds part i to the hash of a bucket. Words for one window are one: what
// remains today is of the limit per day.
func (r *nameReader) hash(h uint64, i int) uint64 {
	p := &r.parts[i]
	if p.class == windowWord && p.span > 0 {
		var buf [20]byte
		return hashWord(h, strconv.AppendInt(buf[:0], int64(p.span), 10))
	}
	return hashWord(h, r.buf[p.lo:p.hi])
}

// names reports whether part i belongs to the name of the bucket.
func (r *nameReader) names(i int) bool {
	p := &r.parts[i]
	return !p.spent && p.class != filler && p.class != relative && p.class != absolute &&
		(p.class != strong || r.is(i, "quota"))
}

// unit returns the unit that part i names. What goes in and what comes out are
// two units, as they have two prices.
func (r *nameReader) unit(i int) string {
	u := r.parts[i].unit
	for _, j := range [...]int{i - 1, i + 1} {
		switch {
		case j < 0 || j >= r.n:
		case u == "" && j < i && r.parts[j].unit == "concurrent_requests":
			return "concurrent_requests"
		case u == "tokens" && (r.is(j, "input") || r.is(j, "prompt")):
			return "input_tokens"
		case u == "tokens" && (r.is(j, "output") || r.is(j, "completion") || r.is(j, "generated")):
			return "output_tokens"
		}
	}
	return u
}

// span returns the window that part i names: 10-second is ten of them.
func (r *nameReader) span(i int) time.Duration {
	span := r.parts[i].span
	if i > 0 {
		if p := &r.parts[i-1]; p.hi-p.lo <= 4 {
			if n := smallInt(r.buf[p.lo:p.hi]); n > 0 {
				span = times(span, n)
			}
		}
	}
	return span
}

// bucketName returns the words of a header name that say which bucket: those
// behind the marker if there are any, else those in front.
func bucketName(name string) string {
	var r nameReader
	var m meaning
	r.read(name, &m)
	for from := r.mark; ; from = 0 {
		var out []byte
		for i := from; i < r.n; i++ {
			if r.names(i) {
				if len(out) > 0 {
					out = append(out, '-')
				}
				out = append(out, r.buf[r.parts[i].lo:r.parts[i].hi]...)
			}
		}
		if len(out) > 0 || from == 0 {
			return string(out)
		}
	}
}

// intern returns the usual names of buckets without a copy, "" for others.
func intern(b []byte) string {
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
