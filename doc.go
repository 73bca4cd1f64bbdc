// Package heed provides an [http.RoundTripper] that keeps an HTTP client within the rate
// limits of the servers that it calls.
//
// A [Transport] reads the limits that servers state in their responses, waits before each
// request until these limits and those of the program allow it, and retries failed requests
// where that is safe.
//
//	client := heed.NewClient(nil)
//	resp, err := client.Get("https://api.example.com/items/1")
//	if err != nil {
//		return err
//	}
//	defer resp.Body.Close()
//
// # The steps of a request
//
//	              ┌──────────────────── delay ◀──────────┐
//	              ▼                                      │ yes
//	validate ─▶ queue ─▶ send ─▶ observe ─▶ classify ─▶ retry?
//	   │          │                                      │ no
//	   ▼          ▼                                      ▼
//	 error      error                            response or error
//
// A [Transport] processes a request in these steps:
//
//   - validate: a request that cannot be sent, such as one without a host or with a
//     space in a header name, fails with an error that names the invalid part.
//   - queue: the request waits until every limit grants it: the known limits of the
//     server and those of the program. A retry waits too, at the queue position of the
//     first attempt, so retries do not exceed a limit.
//   - send: Base sends the request. The caller's request is never modified.
//   - observe: the outcome is reported to the limits. If the server asked clients to
//     stop, a hold begins: see below.
//   - classify: the outcome is final if it is a success, or if a retry would fail in the
//     same way or is not safe. See [RetryPolicy].
//   - delay: the Transport waits before a retry, by default with exponential backoff and
//     jitter, and never for less than the server stated. If the limits already make
//     the retry wait, there is no additional delay.
//
// # Responses and errors
//
// A response is not an error: if no retry is possible, the caller gets the last response
// with its body unread. A request that got no response fails with an error. That error is
// a [*GiveUpError] if the request was sent more than once, if it was sent once and could
// not be retried, or if the wait before it was sent was too long. [InfoFrom] returns what
// happened before a response was returned; [Trace] reports the same events while they
// happen, and [LogTrace] logs them. The modules otelheed and promheed export metrics.
//
// # Time
//
// A wait that is known to end after the deadline of the context is not started; the last
// response or an error is returned immediately. The units of the callers ahead count if they
// have the same tenant, priority and limits, which all state their rates. The same applies to
// a wait for the server that is longer than RetryPolicy.MaxServerWait. [http.Client.Timeout]
// is a deadline of the context, so it includes the time in the queue.
//
// Use a [github.com/heed-go/heed/poll.Poller] for operations that take longer than one
// response. Set Transport.StartJitter if many instances of a program start at the same
// time.
//
// # Holds
//
// A rejected request is sent again when the server permits, for example with Retry-After.
// A hold begins when further requests are rejected that were sent after that: then the
// other requests of the quota wait, until the stated time or until one request that is
// sent as a test is accepted. Package [github.com/heed-go/heed/quota] and
// docs/server-limits.md have the rules by which requests wait, and how to disable them.
//
// # Limitations
//
// The Transport does not hedge: it never sends a request twice at the same time. It does
// not cache, and it does not log.
package heed
