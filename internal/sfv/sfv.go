// Package sfv parses HTTP structured fields (RFC 9651), as far as rate-limit headers use
// them: lists of items with parameters. Inner lists are errors.
// It builds no tree: a [Parser] returns one item at a time and does not allocate.
package sfv

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Kind is the type of a bare item.
type Kind uint8

const (
	None    Kind = iota // no value
	String              // a quoted string
	Token               // an unquoted word
	Number              // integer or decimal
	Bytes               // a byte sequence
	Bool                // a boolean
	Date                // seconds since 1970
	Display             // a string of Unicode characters
)

// Value is a bare item.
type Value struct {
	Kind Kind
	Text string // as in the field: a string without its quotes, with escapes; base64; a boolean as 0 or 1; a date without its @
}

// String returns Text, with the escapes of a String resolved.
func (v Value) String() string {
	if v.Kind == String && strings.IndexByte(v.Text, '\\') >= 0 {
		var b strings.Builder
		for i := 0; i < len(v.Text); i++ {
			if v.Text[i] == '\\' {
				i++
			}
			b.WriteByte(v.Text[i])
		}
		return b.String()
	}
	return v.Text
}

// Param is one parameter of an item.
type Param struct {
	Key   string
	Value Value
}

// Item is an item with its parameters. Parameters with at most eight different keys are kept;
// the others are only checked.
type Item struct {
	Value  Value
	params [8]Param // the first n are those of the item, in the order of their first occurrence
	n      int
}

// Param returns the last value of the parameter key, as RFC 9651 requires, and whether
// there is one.
func (it *Item) Param(key string) (Value, bool) {
	for i := range it.params[:it.n] {
		if it.params[i].Key == key {
			return it.params[i].Value, true
		}
	}
	return Value{}, false
}

// set sets a parameter. A repeated key replaces the earlier value.
func (it *Item) set(p Param) {
	for i := range it.params[:it.n] {
		if it.params[i].Key == p.Key {
			it.params[i].Value = p.Value
			return
		}
	}
	if it.n < len(it.params) {
		it.params[it.n] = p
		it.n++
	}
}

// Parser parses a list. After the last item Next returns false; Malformed then reports
// whether it ended because of a syntax error, which makes the whole field invalid.
type Parser struct {
	s         string
	pos       int
	lenient   bool
	malformed bool
}

// NewParser returns a parser of s. A lenient parser accepts a second string in the place of a
// parameter, as Hugging Face sends it: "fixed window";"api";q=1000. The last string is then the
// value of the item. The Parser is a value, so that it can stay on the stack.
func NewParser(s string, lenient bool) Parser { return Parser{s: s, lenient: lenient} }

// Malformed reports whether a syntax error was found.
func (r *Parser) Malformed() bool { return r.malformed }

// Next parses the next item into it. It returns false at the end of the list and at a syntax error.
func (r *Parser) Next(it *Item) bool {
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
	if it.Value, ok = r.value(); !ok || !r.parameters(it) || !r.separator() {
		r.malformed = true
		return false
	}
	return true
}

// separator skips the separator of two members. A comma at the end is a syntax error.
func (r *Parser) separator() bool {
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

func (r *Parser) parameters(it *Item) bool {
	for r.peek() == ';' {
		r.pos++
		r.skip(" ")
		if r.lenient && r.peek() == '"' {
			var ok bool
			if it.Value, ok = r.value(); !ok {
				return false
			}
			continue
		}
		p := Param{Key: r.take(isKeyStart, isKey), Value: Value{Bool, "1"}}
		if p.Key == "" {
			return false
		}
		if r.peek() == '=' {
			var ok bool
			r.pos++
			if p.Value, ok = r.value(); !ok {
				return false
			}
		}
		it.set(p)
	}
	return true
}

// value parses a bare item.
func (r *Parser) value() (Value, bool) {
	switch c := r.peek(); {
	case c == '"':
		return r.string()
	case c == '-' || isDigit(c):
		return r.number()
	case c == ':':
		return r.bytes()
	case c == '?':
		return r.bool()
	case c == '@':
		r.pos++
		v, ok := r.number()
		return Value{Date, v.Text}, ok && !strings.Contains(v.Text, ".")
	case c == '%':
		return r.display()
	case isLetter(c) || c == '*':
		return Value{Token, r.take(isTokenStart, isToken)}, true
	}
	return Value{}, false
}

func (r *Parser) string() (Value, bool) {
	r.pos++
	start := r.pos
	for ; r.pos < len(r.s); r.pos++ {
		switch c := r.s[r.pos]; {
		case c == '"':
			r.pos++
			return Value{String, r.s[start : r.pos-1]}, true
		case c < ' ' || c > '~':
			return Value{}, false
		case c == '\\':
			r.pos++
			if c := r.peek(); c != '"' && c != '\\' {
				return Value{}, false
			}
		}
	}
	return Value{}, false
}

// display parses a display string: UTF-8, in which all but printable ASCII is escaped as %c3.
func (r *Parser) display() (Value, bool) {
	r.pos++
	if r.peek() != '"' {
		return Value{}, false
	}
	r.pos++
	start := r.pos
	var text []byte
	for ; r.pos < len(r.s); r.pos++ {
		switch c := r.s[r.pos]; {
		case c == '"':
			r.pos++
			return Value{Display, r.s[start : r.pos-1]}, utf8.Valid(text)
		case c < ' ' || c > '~':
			return Value{}, false
		case c == '%':
			digits := r.s[r.pos+1 : min(r.pos+3, len(r.s))]
			octet, err := hex.DecodeString(digits)
			if err != nil || len(octet) != 1 || strings.ToLower(digits) != digits {
				return Value{}, false
			}
			text = append(text, octet...)
			r.pos += 2
		default:
			text = append(text, c)
		}
	}
	return Value{}, false
}

// number parses up to 15 digits, or up to 12 digits followed by a point and up to 3 digits.
func (r *Parser) number() (Value, bool) {
	start := r.pos
	if r.peek() == '-' {
		r.pos++
	}
	whole := r.digits()
	if whole == 0 || whole > 15 {
		return Value{}, false
	}
	if r.peek() == '.' {
		r.pos++
		if part := r.digits(); whole > 12 || part == 0 || part > 3 {
			return Value{}, false
		}
	}
	return Value{Number, r.s[start:r.pos]}, true
}

func (r *Parser) bytes() (Value, bool) {
	r.pos++
	end := strings.IndexByte(r.s[r.pos:], ':')
	if end < 0 {
		return Value{}, false
	}
	text := r.s[r.pos : r.pos+end]
	r.pos += end + 1
	return Value{Bytes, text}, countPrefix(text, isBase64) == len(text)
}

func (r *Parser) bool() (Value, bool) {
	r.pos++
	c := r.peek()
	if c != '0' && c != '1' {
		return Value{}, false
	}
	r.pos++
	return Value{Bool, r.s[r.pos-1 : r.pos]}, true
}

func (r *Parser) digits() int {
	n := countPrefix(r.s[r.pos:], isDigit)
	r.pos += n
	return n
}

// take reads a word whose first byte satisfies first and whose other bytes satisfy rest.
func (r *Parser) take(first, rest func(byte) bool) string {
	if !first(r.peek()) {
		return ""
	}
	n := 1 + countPrefix(r.s[r.pos+1:], rest)
	r.pos += n
	return r.s[r.pos-n : r.pos]
}

func (r *Parser) skip(chars string) {
	for r.pos < len(r.s) && strings.IndexByte(chars, r.s[r.pos]) >= 0 {
		r.pos++
	}
}

func (r *Parser) peek() byte {
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
	return isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// countPrefix returns the number of bytes at the start of s for which ok returns true.
func countPrefix(s string, ok func(byte) bool) int {
	n := 0
	for n < len(s) && ok(s[n]) {
		n++
	}
	return n
}
