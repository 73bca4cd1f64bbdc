// Package heed makes an HTTP client a good citizen of the APIs it calls: it
// throttles itself before sending, reads what the server says about its limits,
// waits as long as it must and no longer, and sends again only where that is safe.
//
//	client := heed.NewClient(nil)
//	resp, err := client.Get("https://api.example.com/items/1")
//
// # The story of one request
//
// A [Transport] is an http.RoundTripper. This is what it does with a request:
//
//		          ┌────────────────────── again ──────────────────────┐
//		          ▼                                                   │
//		check ─▶ line ─▶ send ─▶ observe ─▶ good, or final? ── no ─▶ pause
//		  │        │                              │ yes               │
//		  ▼        ▼                              ▼                   ▼
//		error    too long:                    the answer          too long:
//		         error                                            the last answer
//
//	  - check: what cannot be sent (no host, a header name with a space) is refused
//	    with an error that says what to mend.
//	  - line: the request stands in line, with all others that share a limit with it,
//	    until every limit grants it: the server's own, as far as known, and those
//	    that the program sets. This is before each attempt, retries included, so that
//	    retries never exceed a limit. A retry keeps the place of its first arrival.
//	  - send: Base sends it. The request is never modified.
//	  - observe: the limits hear what the server said, at once. If it said stop,
//	    nobody passes until it is over, and then they pass one by one.
//	  - final: a good answer, one that would not get better, or one to a request that
//	    may have done its work and must not do it twice. See [RetryPolicy].
//	  - pause: exponential, at random, and never shorter than the server said. Where
//	    the limits impose the wait already, there is none on top.
//
// An answer is not an error: when there is no hope left the caller gets the last
// answer with its body to read. A failure without an answer is an error, as from
// any RoundTripper; if it took more than one attempt, or if the request could not
// be sent in time, it is a [*GiveUpError]. What happened on the way is in
// [InfoFrom], and [Trace] tells it while it happens.
//
// # Time
//
// A wait that is known not to end before the context does is not begun: the answer,
// or the error, comes at once. Nor is one that the server asks for and that is longer
// than RetryPolicy.MaxWait, be it in line or before another attempt. http.Client.Timeout is
// part of the context and includes the time in line.
//
// What takes longer than one answer is followed by a [github.com/heed-go/heed/poll.Poller].
// Programs that all start at the same time set Transport.StartJitter.
//
// # Holds
//
// A hold, which begins when a server asks to stop, is its route's; a second route that is
// rejected meanwhile makes it the host's. What is learned of servers that do not state
// their limits, and how to switch that off, is explained in docs/estimates.md of the
// repository and in package [github.com/heed-go/heed/quota].
//
// # What it does not do
//
// It does not hedge: no request is sent twice at the same time. It does not cache.
// It never logs.
package heed
