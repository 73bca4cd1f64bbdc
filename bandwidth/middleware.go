package bandwidth

import (
	"net/http"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Middleware paces the bodies of the requests that a server reads, and of the responses
// that it writes.
//
// A hijacked connection, such as a WebSocket, is paced in both directions, until it is
// closed. The *bufio.ReadWriter of Hijack is paced too.
//
// Its fields must not be changed after the first request, and it must not be copied after
// that.
type Middleware struct {
	// Upload must grant each byte of a request body before the handler gets it. Nil means
	// that request bodies are not paced.
	Upload throttle.Limiter

	// Download must grant each byte of a response body before it is written. Nil means that
	// response bodies are not paced. It may be the same limiter as Upload. Bodies that are
	// not sent, as those of responses to HEAD requests, take no units.
	Download throttle.Limiter

	// Key returns the throttle.Claim.Key of a request, such as the name of its customer. It
	// is called once per request. Nil means that all requests have the key "".
	Key func(*http.Request) string

	// Tenant returns the name of the tenant that a stream is for, as Transport.Tenant.
	Tenant func(*http.Request) string

	// Queue is where streams wait, as Transport.Queue. Nil means a Queue that is used by this
	// Middleware alone, with a MaxWait of 1 minute.
	Queue *queue.Queue

	own ownQueue
}

// Handler returns a handler that calls next with paced bodies. The ResponseWriter has the
// optional interfaces of the one below (http.Flusher, http.Hijacker, http.Pusher,
// io.ReaderFrom, http.CloseNotifier); an http.ResponseController finds all others. Deadlines that are set with
// one also end waits. A regular file that is copied to the response, as http.ServeContent
// does, is still passed to the system by reference (sendfile), one chunk at a time.
//
// A Write that waits flushes what was written before, so that slow responses arrive evenly.
// The first 4 KiB are not flushed, as the server may still state the length of a short body.
//
// An error of a Read or Write is that of the server, or one of those that
// Transport.RoundTrip lists.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if m.Upload == nil && m.Download == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := settingsOf(r, m.Key, m.Tenant, m.own.orDefault(m.Queue))
		paced := &response{w: w, request: r, settings: s, upload: m.Upload, download: m.Download}
		defer paced.close()
		served := paced.pacedRequest()
		defer func() { r.Pattern = served.Pattern }() // of a mux inside, for the middleware outside
		next.ServeHTTP(paced.writer(), served)
	})
}
