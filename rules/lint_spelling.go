package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// unknownMethods finds methods that are probably misspelled. Parse accepts them, because
// applications may define methods.
func (l *linter) unknownMethods(r *rule) {
	if r.match == nil {
		return
	}
	for _, name := range r.match.methods {
		l.unknownMethod(r, name)
	}
}

func (l *linter) unknownMethod(r *rule, name string) {
	if !slices.Contains(registeredMethods, name) {
		l.report(r, fmt.Sprintf("%q is no registered method of HTTP", name), "check how it is spelled")
	}
}

// registeredMethods are the methods of the IANA registry (RFC 9110, section 16.1), and PURGE,
// which caches use.
var registeredMethods = strings.Fields(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK
	MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH
	PURGE PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`)

// impossibleValue finds a value of a descriptor that no request has.
func (l *linter) impossibleValue(r *rule, s *valueSource, value string) {
	switch name := strings.TrimPrefix(s.wellKnown(), ":"); {
	case name == "remote_address" && !isRemoteAddress(value):
		l.report(r, fmt.Sprintf("no request has the remote_address %q", value), "write an IPv4 address, or the first 64 bits of an IPv6 address such as 2001:db8::/64")
	case name == "method":
		l.unknownMethod(r, value)
	case name == "path" && !strings.HasPrefix(value, "/"):
		l.report(r, fmt.Sprintf("no request has the path %q", value), "write one that begins with /")
	case (name == "host" || name == "authority") && value != httphost.Name(value):
		l.report(r, fmt.Sprintf("no request has the host %q", value), fmt.Sprintf("write %q", httphost.Name(value)))
	}
}

// wellKnown returns the key in the map wellKnown that supplies the values of s. It returns "" if
// the values come from elsewhere.
func (s *valueSource) wellKnown() string {
	if s.origin == "" {
		return s.name
	}
	name, _ := strings.CutPrefix(s.origin, "request ")
	if wellKnown[name] == nil {
		return ""
	}
	return name
}

// isRemoteAddress reports whether remoteAddress can return value.
func isRemoteAddress(value string) bool {
	if a, err := netip.ParseAddr(value); err == nil {
		return a.Is4()
	}
	p, err := netip.ParsePrefix(value)
	return err == nil && p.Addr().Is6() && p.Bits() == 64 && p.Masked() == p
}
