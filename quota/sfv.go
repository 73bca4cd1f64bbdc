package quota

import (
	"encoding/base64"
	"strings"
)

// Structured fields (RFC 9651), as far as rate-limit headers use them: a list of
// items with parameters. Inner lists, dates and display strings end the reading.
// There is no tree: the reader hands out one item at a time.

// sfKind is the kind of a bare item.
type sfKind uint8

const (
	sfNone sfKind = iota
	sfString
	sfToken
	sfNumber // integer or decimal
	sfBytes
	sfBool
)

// A sfValue is a bare item. Text is what stands in the field: of a string the
// inside with its escapes, of a byte sequence the base64, of a boolean 0 or 1.
type sfValue struct {
	kind sfKind
	text string
}

// String returns the value of a string, its escapes resolved.
func (v sfValue) String() string {
	if v.kind == sfString && strings.IndexByte(v.text, '\\') >= 0 {
		var b strings.Builder
		for i := 0; i < len(v.text); i++ {
			if v.text[i] == '\\' {
				i++
			}
			b.WriteByte(v.text[i])
		}
		return b.String()
	}
	return v.text
}

// A sfParam is one parameter of an item.
type sfParam struct {
	key   string
	value sfValue
}

// A sfItem is an item with its parameters. Those beyond the first eight are
// checked and left out.
type sfItem struct {
	value  sfValue
	params [8]sfParam
	n      int
}

// param returns the last value given for key, as the RFC wants it.
func (it *sfItem) param(key string) (sfValue, bool) {
	for i := it.n - 1; i >= 0; i-- {
		if it.params[i].key == key {
			return it.params[i].value, true
		}
	}
	return sfValue{}, false
}

// integer returns the value of parameter key if there is one. It is not valid if there is one
// that is no integer, or negative.
func (it *sfItem) integer(key string) (n decimal, ok, valid bool) {
	v, ok := it.param(key)
	if !ok {
		return decimal{}, false, true
	}
	n, ok = v.integer()
	return n, ok, ok
}

// integer returns v if it is an integer that is not negative.
func (v sfValue) integer() (decimal, bool) {
	if v.kind != sfNumber || strings.IndexByte(v.text, '.') >= 0 {
		return decimal{}, false
	}
	n, ok := parseDecimal(v.text)
	return n, ok && !n.negative
}

// partitionKey returns the partition key of an item, "" if it has none. What is not a byte
// sequence, as the draft wants it, counts as it is.
func (it *sfItem) partitionKey() string {
	v, ok := it.param("pk")
	if !ok || v.kind == sfBool {
		return ""
	}
	if v.kind == sfBytes {
		if b, err := base64.StdEncoding.DecodeString(v.text); err == nil {
			return truncate(string(b))
		}
	}
	return truncate(v.String())
}

// A sfParser reads a list. After the last item next is false; bad tells whether
// that was because of a mistake, which makes the whole field void.
type sfParser struct {
	s         string
	pos       int
	malformed bool

	// lenient accepts a second string where a parameter should be, as Hugging
	// Face writes it ("fixed window";"api";q=1000). The last string counts.
	lenient bool
}

func (r *sfParser) next(it *sfItem) bool {
	it.n = 0
	if r.pos == 0 {
		r.skip(" ")
		if r.pos == len(r.s) {
			return false
		}
	}
	if r.malformed || r.pos >= len(r.s) {
		return false
	}
	var ok bool
	if it.value, ok = r.value(); !ok || !r.parameters(it) || !r.separator() {
		r.malformed = true
		return false
	}
	return true
}

// separator steps over what separates members; a comma at the end is a mistake.
func (r *sfParser) separator() bool {
	r.skip(" \t")
	if r.pos == len(r.s) {
		return true
	}
	if r.s[r.pos] != ',' {
		return false
	}
	r.pos++
	r.skip(" \t")
	return r.pos < len(r.s)
}

func (r *sfParser) parameters(it *sfItem) bool {
	for r.peek() == ';' {
		r.pos++
		r.skip(" ")
		if r.lenient && r.peek() == '"' {
			var ok bool
			if it.value, ok = r.value(); !ok {
				return false
			}
			continue
		}
		p := sfParam{key: r.take(isKeyStart, isKey), value: sfValue{sfBool, "1"}}
		if p.key == "" {
			return false
		}
		if r.peek() == '=' {
			var ok bool
			r.pos++
			if p.value, ok = r.value(); !ok {
				return false
			}
		}
		if it.n < len(it.params) {
			it.params[it.n] = p
			it.n++
		}
	}
	return true
}

// value reads a bare item.
func (r *sfParser) value() (sfValue, bool) {
	switch c := r.peek(); {
	case c == '"':
		return r.string()
	case c == '-' || isDigit(c):
		return r.number()
	case c == ':':
		return r.bytes()
	case c == '?':
		return r.bool()
	case isLetter(c) || c == '*':
		return sfValue{sfToken, r.take(isTokenStart, isToken)}, true
	}
	return sfValue{}, false
}

func (r *sfParser) string() (sfValue, bool) {
	r.pos++
	start := r.pos
	for ; r.pos < len(r.s); r.pos++ {
		switch c := r.s[r.pos]; {
		case c == '"':
			r.pos++
			return sfValue{sfString, r.s[start : r.pos-1]}, true
		case c < ' ' || c > '~':
			return sfValue{}, false
		case c == '\\':
			r.pos++
			if c := r.peek(); c != '"' && c != '\\' {
				return sfValue{}, false
			}
		}
	}
	return sfValue{}, false
}

// number reads up to 15 digits, or up to 12 with up to 3 behind a point.
func (r *sfParser) number() (sfValue, bool) {
	start := r.pos
	if r.peek() == '-' {
		r.pos++
	}
	whole := r.digits()
	if whole == 0 || whole > 15 {
		return sfValue{}, false
	}
	if r.peek() == '.' {
		r.pos++
		if part := r.digits(); whole > 12 || part == 0 || part > 3 {
			return sfValue{}, false
		}
	}
	return sfValue{sfNumber, r.s[start:r.pos]}, true
}

func (r *sfParser) bytes() (sfValue, bool) {
	r.pos++
	end := strings.IndexByte(r.s[r.pos:], ':')
	if end < 0 {
		return sfValue{}, false
	}
	text := r.s[r.pos : r.pos+end]
	r.pos += end + 1
	return sfValue{sfBytes, text}, countPrefix(text, isBase64) == len(text)
}

func (r *sfParser) bool() (sfValue, bool) {
	r.pos++
	c := r.peek()
	if c != '0' && c != '1' {
		return sfValue{}, false
	}
	r.pos++
	return sfValue{sfBool, r.s[r.pos-1 : r.pos]}, true
}

func (r *sfParser) digits() int {
	n := countPrefix(r.s[r.pos:], isDigit)
	r.pos += n
	return n
}

// take reads a word of bytes that pass rest, the first of which passes first.
func (r *sfParser) take(first, rest func(byte) bool) string {
	if !first(r.peek()) {
		return ""
	}
	n := 1 + countPrefix(r.s[r.pos+1:], rest)
	r.pos += n
	return r.s[r.pos-n : r.pos]
}

func (r *sfParser) skip(chars string) {
	for r.pos < len(r.s) && strings.IndexByte(chars, r.s[r.pos]) >= 0 {
		r.pos++
	}
}

func (r *sfParser) peek() byte {
	if r.pos < len(r.s) {
		return r.s[r.pos]
	}
	return 0
}

func isKeyStart(c byte) bool { return c >= 'a' && c <= 'z' || c == '*' }

func isKey(c byte) bool {
	return isKeyStart(c) || isDigit(c) || c == '_' || c == '-' || c == '.'
}

func isTokenStart(c byte) bool { return isLetter(c) || c == '*' }

func isToken(c byte) bool {
	return isLetter(c) || isDigit(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}
