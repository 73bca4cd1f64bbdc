package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// methods finds methods that are probably misspelled. They are not refused, because
// programs may have methods of their own.
func (l *linter) methods(r *rule) {
	if r.match == nil {
		return
	}
	for _, name := range r.match.methods {
		l.method(r, name)
	}
}

func (l *linter) method(r *rule, name string) {
	if !slices.Contains(registered, name) {
		l.tell(r, fmt.Sprintf("%q is no registered method of HTTP", name), "check how it is spelled")
	}
}

// registered are the methods of the IANA registry (RFC 9110, section 16.1), and PURGE,
// which caches have.
var registered = strings.Fields(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK
	MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH
	PURGE PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)

// impossible finds a value of a descriptor that no request has.
func (l *linter) impossible(r *rule, s *source, value string) {
	switch name := strings.TrimPrefix(s.wellKnown(), ":"); {
	case name == "remote_address" && !isRemote(value):
		l.tell(r, fmt.Sprintf("no request has the remote_address %q", value), "write an IPv4 address, or the first 64 bits of an IPv6 address such as 2001:db8::/64")
	case name == "method":
		l.method(r, value)
	case name == "path" && !strings.HasPrefix(value, "/"):
		l.tell(r, fmt.Sprintf("no request has the path %q", value), "write one that begins with /")
	case (name == "host" || name == "authority") && value != httphost.Name(value):
		l.tell(r, fmt.Sprintf("no request has the host %q", value), fmt.Sprintf("write %q", httphost.Name(value)))
	}
}

// wellKnown returns the name in wellKnown that the values of s come from; "": they come
// from elsewhere.
func (s *source) wellKnown() string {
	if s.told == "" {
		return s.name
	}
	name, _ := strings.CutPrefix(s.told, "request ")
	if wellKnown[name] == nil {
		return ""
	}
	return name
}

// isRemote reports whether remoteAddress may return value.
func isRemote(value string) bool {
	if a, err := netip.ParseAddr(value); err == nil {
		return a.Is4()
	}
	p, err := netip.ParsePrefix(value)
	return err == nil && p.Addr().Is6() && p.Bits() == 64 && p.Masked() == p
}
