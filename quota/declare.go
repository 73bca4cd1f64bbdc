package quota

import (
	"fmt"
	"maps"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/throttle"
)

// Declare states the limit of a server before any response does: l.Count requests in each
// l.Per, or l.Burst requests in a correspondingly shorter time if that is fewer. Requests of
// each account at host are counted against it, from the first one on, until a response states
// how many requests are left. A rejection that comes before the limit is used up lowers it.
// If the server is seen to have several quotas, the limit holds for each of them. It holds with
// every Mode but Disabled.
//
// host is the host of a URL, with its port unless that is the default one. Declare applies to
// accounts that are not known yet, so it is called before the first request to the host. It
// replaces what was declared for host. An error is returned if host is no host or l is not
// valid.
func (t *Tracker) Declare(host string, l throttle.Limit) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("quota: declare a limit of %q: %w", host, err)
	}
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return fmt.Errorf("quota: declare a limit of %q: not a host", host)
	}
	host = httphost.Canonical("https", host)
	for {
		before, all := t.declared.Load(), map[string]throttle.Limit{host: l}
		if before != nil {
			all = maps.Clone(*before)
			all[host] = l
		}
		if t.declared.CompareAndSwap(before, &all) {
			return nil
		}
	}
}
