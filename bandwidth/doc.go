// Package bandwidth paces the bodies of HTTP requests and responses by any
// throttle.Limiter whose units are bytes.
//
//	limit := throttle.NewTokenBucket(bandwidth.PerSecond(10_000_000)) // 10 MB/s for all streams together
//
//	client := heed.NewClient(&heed.Transport{Base: &bandwidth.Transport{Download: limit}})
//
//	handler = (&bandwidth.Middleware{Download: limit}).Handler(handler)
//
// Upload is always the direction from the client to the server, and Download the other one.
//
// A stream is one body, or one direction of a connection that was upgraded. Its bytes are
// passed on in chunks as soon as the limiter grants them, and are not buffered. The size of
// a chunk follows from what the limiter states of itself: about 5 ms of its rate (512 bytes if
// that is more), and at most half of its burst. A chunk of fewer bytes, such as one event of a stream of events, is
// passed on without waiting for more.
//
//	Read   reads a chunk from the body below, waits until its bytes are granted, returns it
//	Write  waits until the bytes of a chunk are granted, then writes it
//
// Streams that wait for the same limit share it evenly, whatever the sizes of their reads and
// writes: each is a tenant of a queue.Queue, see Transport.Tenant. A wait ends with the
// context of the request, when the body is closed, at a deadline set by an
// http.ResponseController or on the connection, and after Queue.MaxWait.
//
// # Order of RoundTrippers
//
// Put a Transport beneath a heed.Transport, as its Base. Then every attempt is paced, also
// the body of a retry, and so are responses that are discarded before a retry. Above a
// heed.Transport only the bytes that the caller sends and receives are paced: a retry can
// resend a body from a buffer without waiting, and a heed.Transport sees a body of another
// type than the caller's, so that a body that could be rewound is buffered, or sent once.
// RetryPolicy.AttemptTimeout of a heed.Transport above includes the time for which an
// upload is paced.
//
// Put a Middleware outside of handlers that compress, so that it counts compressed bytes.
//
// # Limitations
//
// Bodies are paced, and not headers, trailers, TLS or TCP: a packet capture shows some
// percent more. Bytes that a Read has not yet been granted were already received, at most one chunk for
// each stream in addition to the buffers of net/http and of the system. A server of
// net/http collects up to 4 KiB of a response before it sends them, with and without this
// package; Flush sends them. After the first 4 KiB, a Middleware flushes the response whenever
// a Write waits. What a server of net/http discards of a request body after the
// handler has returned is not paced.
package bandwidth
