package rules

import (
	"fmt"
	"io"
	"strings"
)

// String returns the limits in force, one per line in the order of the file: the position, the ID,
// and the amount with all defaults. The same file always results in the same text, so that
// versions of a file can be compared.
func (s *Set) String() string {
	var b strings.Builder
	_, _ = s.WriteTo(&b)
	return b.String()
}

// WriteTo implements io.WriterTo. It writes the text that String returns.
func (s *Set) WriteTo(w io.Writer) (n int64, err error) {
	wide, where := 0, 0
	for _, r := range s.rules {
		wide = max(wide, min(len(r.limit.ID), 60))
		where = max(where, len(r.limit.position().String()))
	}
	write := func(format string, args ...any) {
		if err == nil {
			var k int
			k, err = fmt.Fprintf(w, format, args...)
			n += int64(k)
		}
	}
	write("domain %s: %d limits\n", quoteIfNeeded(s.domain), len(s.rules))
	for _, v := range s.sources {
		if v.origin != "" {
			write("value %s: %s\n", quoteIfNeeded(v.name), v.origin)
		}
	}
	for _, r := range s.rules {
		write("%-*s  %-*s  %s\n", where, r.limit.position(), wide, r.limit.ID, r.limit.definition())
	}
	return n, err
}

func (l *Limit) position() position { return position{l.Line, l.Column} }
