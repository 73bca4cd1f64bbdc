package quota

import "time"

// A meaning is what a header name says.
type meaning struct {
	field  Field
	marked bool          // the name speaks of rate limits; else only the values can tell
	hinted bool          // not marked, but limits are all that such names speak of
	unit   string        // what is counted; "" is requests
	span   time.Duration // the window named, 0: none
	scale  time.Duration // unit of time of a bare number, 0: not named

	spelling uint8  // X- or not, one word or two
	bucket   uint64 // hash of the words that say which bucket; 0: none do
	single   string // the bucket's name if it is one word of the dictionary
}

const (
	spelledX = 1 << iota
	spelledApart
)

// maxName is the number of bytes of a name that count, of a header as of a limit. What is
// longer is truncated: of a header name each word, since the last ones say what the value is.
const maxName = 96

// A part is one word of a name.
type part struct {
	word
	lo, hi uint8 // where it stands
	spent  bool  // it played its part and does not name the bucket
}

// A nameReader takes a name apart.
type nameReader struct {
	buf   [maxName]byte // the name in lower case
	parts [16]part
	n     int
	mark  int // index of the first part behind the marker; 0: no marker
	field int // index of the field word; -1: none
}

// readName reads a name by its grammar: the rightmost field word says what the
// value is, units and windows say of what, and the rest says which bucket.
func readName(name string) (m meaning, ok bool) {
	var r nameReader
	r.read(name, &m)
	return m, m.marked || m.hinted || m.field == FieldRetryAfter
}

func (r *nameReader) read(name string, m *meaning) {
	r.split(name)
	r.findMarker(m)
	r.field = -1
	r.findPairs()
	r.findField()
	if r.field >= 0 {
		m.field = r.parts[r.field].field
		r.readTime(m)
	}
	r.readQualifiers(m)
}

// split cuts the name at its hyphens, and words that are glued together.
func (r *nameReader) split(name string) {
	s := lower(r.buf[:], name)
	if len(name) > maxName {
		s = shorten(r.buf[:], name)
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '-' || s[i] == '_' || s[i] == '.' {
			if i > start {
				r.add(start, i, 3)
			}
			start = i + 1
		}
	}
}

// shorten copies into buf, in lower case, the first bytes of each word of a long name. What does
// not fit then is left out.
func shorten(buf []byte, name string) []byte {
	const most = 16 // longer than any word of the dictionary
	n, word := 0, 0
	for i := 0; i < len(name) && n < len(buf); i++ {
		if word++; name[i] == '-' || name[i] == '_' || name[i] == '.' {
			word = 0
		}
		if word <= most {
			lower(buf[n:n+1], name[i:i+1])
			n++
		}
	}
	return buf[:n]
}

// add adds the word between lo and hi, or the words that it is glued of, cutting
// up to depth times.
func (r *nameReader) add(lo, hi, depth int) {
	s := r.buf[lo:hi]
	w, known := words[string(s)]
	if !known && depth > 0 {
		if cut := gluedAt(s); cut > 0 {
			r.add(lo, lo+cut, depth-1)
			r.add(lo+cut, hi, depth-1)
			return
		}
	}
	if !known {
		w = spanWord(s)
	}
	if r.n < len(r.parts) {
		r.parts[r.n] = part{word: w, lo: uint8(lo), hi: uint8(hi)}
		r.n++
	}
}

// gluedAt returns where to cut s, 0 if it is one word: in front of a field word
// that ends it, behind a marker that begins it, or between a scope and a window.
func gluedAt(s []byte) int {
	const mark = "ratelimit"
	if len(s) > len(mark) && string(s[:len(mark)]) == mark {
		return len(mark)
	}
	for _, tail := range glued {
		if cut := len(s) - len(tail); cut > 1 && string(s[cut:]) == tail {
			return cut
		}
	}
	if len(s) > 3 && (string(s[:3]) == "app" || string(s[:3]) == "api") {
		return 3
	}
	return 0
}

// spanWord reads windows such as 1m, 10s and 15min; what is neither that nor a
// number alone is a qualifier.
func spanWord(s []byte) word {
	digits := 0
	for digits < len(s) && digits < 4 && isDigit(s[digits]) {
		digits++
	}
	if digits == 0 || digits == len(s) {
		return word{}
	}
	if unit := unitOfTime(string(s[digits:])); unit >= time.Second {
		return word{class: windowWord, span: times(unit, smallInt(s[:digits]))}
	}
	return word{}
}

// findMarker looks for what says that the name is about rate limits, in one
// word or in two.
func (r *nameReader) findMarker(m *meaning) {
	if r.n > 0 && r.is(0, "x") {
		m.spelling |= spelledX
	}
	for i := range r.parts[:r.n] {
		p := &r.parts[i]
		if p.class == marker {
			p.spent, r.mark, m.marked = true, i+1, true
			return
		}
		if r.is(i, "rate") && i+1 < r.n && r.parts[i+1].field == FieldLimit {
			p.spent, r.mark, m.marked = true, i+2, true
			r.parts[i+1].spent, r.parts[i+1].class = true, marker
			m.spelling |= spelledApart
			return
		}
	}
}

// findPairs looks for fields of two words: retry after, fill rate.
func (r *nameReader) findPairs() {
	for i := 0; i+1 < r.n; i++ {
		p, next := &r.parts[i], &r.parts[i+1]
		switch {
		case r.is(i, "retry") && (next.class == relative || next.class == absolute):
			p.class, p.field = strong, FieldRetryAfter // and not Retry-Count
		case r.is(i, "burst") && next.class == weak && next.field == FieldLimit:
			p.spent = true // Burst-Capacity: how much fits into the bucket
		case r.is(i, "per") && next.class != windowWord:
			p.class = qualifier // per-ticket
		case r.is(i+1, "rate") && (r.is(i, "fill") || r.is(i, "refill") || r.is(i, "replenish") || r.is(i, "restore")):
			p.spent = true
			next.class, next.field = strong, FieldRate
		}
	}
}

// findField takes the rightmost strong field word, else the rightmost weak one.
// Retry is never overruled.
func (r *nameReader) findField() {
	for i := range r.parts[:r.n] {
		p := &r.parts[i]
		switch {
		case p.spent || p.class != strong && p.class != weak:
		case r.field < 0, r.parts[r.field].field != FieldRetryAfter && (p.class == strong || r.parts[r.field].class == weak):
			r.field = i
		}
	}
	if r.field >= 0 {
		r.parts[r.field].spent = true
	}
}

// readTime reads what stands behind a timed field: the unit of a bare number,
// and whether it is a delay. What remains in seconds is the time until the reset.
func (r *nameReader) readTime(m *meaning) {
	if i := r.field + 1; m.field == FieldRemaining && i < r.n && r.parts[i].class == scaleWord {
		m.field = FieldResetAfter
	}
	if !m.field.timed() {
		return
	}
	for i := range r.parts[:r.n] {
		p := &r.parts[i]
		near := i > r.field && r.parts[i-1].spent
		switch {
		case p.class == scaleWord && (near || i > r.field && r.is(i, "ms")):
			m.scale, p.spent = p.span, true
			if m.field == FieldReset {
				m.field = FieldResetAfter
			}
		case p.class == relative && near:
			p.spent = true
			if m.field == FieldReset {
				m.field = FieldResetAfter
			}
		case p.class == absolute && near, r.is(i, "time"):
			p.spent = true
		}
	}
}

func (r *nameReader) is(i int, s string) bool { return r.text(i) == s }

// text returns part i. The compiler spares the copy where it is only compared.
func (r *nameReader) text(i int) string {
	p := &r.parts[i]
	return string(r.buf[p.lo:p.hi])
}
