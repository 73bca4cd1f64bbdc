package serverrules

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Nginx is limit_req of nginx 1.22 (ngx_http_limit_req_module.c), with rejection as
// limit_req_status. Status 444 closes the connection. The rule is throttle.NewNginx, which is
// compared with recorded decisions of nginx.
func Nginx(c throttle.NginxConfig, rejection Reply) Server {
	l := throttle.NewNginx(c)
	return func(r Request) Reply {
		d, err := throttle.ReserveAhead(context.Background(), l, throttle.Claim{Now: r.At}, time.Hour)
		switch {
		case err != nil:
			panic(err)
		case d.OK:
			return Reply{Delay: d.Wait}
		case rejection.Status == 444:
			return Reply{Drop: true}
		}
		return rejection
	}
}

// Reject returns a rejection without headers about limits.
func Reject(code int) Reply { return status(code) }

// RejectFor returns a rejection with a fixed Retry-After, as an add_header directive writes it.
func RejectFor(code int, retryAfter string) Reply {
	return Reply{Status: code, Header: http.Header{"Retry-After": {retryAfter}}}
}
