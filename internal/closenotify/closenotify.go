// Package closenotify implements http.CloseNotifier for ResponseWriters that wrap others. The
// interface is deprecated, and frameworks still use it: Context.Stream of gin panics without it.
package closenotify

import (
	"context"
	"net/http"
)

// Of returns the channel of the http.CloseNotifier w. If w is none, it returns a channel that
// receives true when ctx, the context of the request, is done.
func Of(ctx context.Context, w http.ResponseWriter) <-chan bool {
	if n, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // deprecated, see above
		return n.CloseNotify()
	}
	gone := make(chan bool, 1)
	context.AfterFunc(ctx, func() { gone <- true })
	return gone
}
