package heedtest

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Response describes how the Server responds to one request. The zero Response is status
// 200 with the body "ok\n".
type Response struct {
	// Delay is the time before anything is sent.
	Delay time.Duration

	// EarlyHints is the header of an informational response with status 103 that precedes
	// the response. Nil means none.
	EarlyHints http.Header

	// Status is the status of the response. Zero means 200. After status 101 the server
	// sends back all bytes that the client sends.
	Status int

	// Header is added to the headers that the limits set.
	Header http.Header

	// Body is the body of the response. Empty means "ok\n". Responses with status 204 or 304
	// have no body.
	Body string

	// ByteInterval is the time before each byte of the body. Zero means that the body is
	// sent in one piece.
	ByteInterval time.Duration

	// Fault is the failure of the response. Zero means NoFault.
	Fault Fault
}

// A Fault is a way in which a response fails.
type Fault uint8

// The faults. Over HTTP/2, Drop and CutBody reset the stream and keep the connection.
const (
	NoFault      Fault = iota
	Hang               // no response until the client gives up
	Drop               // no response: the connection is closed
	Reset              // no response: the connection is reset
	HalfOpenConn       // no response: the connection is half-open from now on, as if the server had lost power
	CutBody            // the connection is closed after half of the body
	ResetBody          // the connection is reset after half of the body
	HangBody           // half of the body, then nothing until the client gives up
	Endless            // the body repeatedly until the client gives up; ByteInterval is the time between repetitions, 0 means 1 ms
	HangConn           // a complete response; afterwards the connection is half-open, as after HalfOpenConn

	// The following faults exist in HTTP/2 only. Over HTTP/1.1 they act like Drop.

	RefuseStream          // the stream is reset with REFUSED_STREAM: the request has not been processed
	EnhanceYourCalmStream // the stream is reset with ENHANCE_YOUR_CALM
	GoAway                // GOAWAY with NO_ERROR: this request and later ones have not been processed
	EnhanceYourCalmConn   // GOAWAY with ENHANCE_YOUR_CALM, then the connection is closed: the request may have been processed
)

// hangDelay is the time between the end of a response and the moment at which a HangConn
// connection stops working. The response must have been sent by then.
const hangDelay = 10 * time.Millisecond

// ServeHTTP responds with a. It makes a the OnReject handler of a Server's Limit, so that the
// Server rejects as some servers do: with 403 or 503 instead of 429, with a closed connection
// (nginx's status 444), late (HAProxy's tarpit), or not at all (its silent-drop). The headers
// of the Limit are kept unless EditHeader is NoHeaders. ServeHTTP panics if r was not received
// by a Server of this package.
func (a Response) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, ok := r.Context().Value(writerKey{}).(*responseWriter)
	if !ok {
		panic("heedtest: Response.ServeHTTP: the request was not received by a heedtest.Server")
	}
	a.write(w, out, r)
}

type writerKey struct{}

// write responds to r with a. out is the writer of the Server; w may be a writer of a
// middleware around it.
func (a Response) write(w http.ResponseWriter, out *responseWriter, r *http.Request) {
	sleep(r.Context(), a.Delay)
	a.failWithoutResponse(r, out.stream)
	if a.EarlyHints != nil {
		maps.Copy(w.Header(), a.EarlyHints)
		w.WriteHeader(http.StatusEarlyHints)
		for key := range a.EarlyHints {
			w.Header().Del(key)
		}
	}
	if a.Status == http.StatusSwitchingProtocols {
		echo(out)
		return
	}
	body := cmp.Or(a.Body, "ok\n")
	if a.hasNoBody() {
		body = ""
	}
	a.writeHeader(w, body)
	a.writeBody(w, r, body)
}

// hasNoBody reports whether the status of a excludes a body. net/http rejects one.
func (a Response) hasNoBody() bool {
	return a.Status == http.StatusNoContent || a.Status == http.StatusNotModified
}

// failWithoutResponse executes a.Fault and aborts the handler, if it is a fault without a
// response.
func (a Response) failWithoutResponse(r *http.Request, stream uint32) {
	switch c := connOf(r); a.Fault {
	case Hang:
		<-r.Context().Done()
	case Drop:
	case Reset:
		c.reset()
	case HalfOpenConn:
		c.hang()
		<-c.closed
	case RefuseStream:
		c.insert(resetFrameOf(stream, refusedStream))
	case EnhanceYourCalmStream:
		c.insert(resetFrameOf(stream, enhanceYourCalm))
	case GoAway:
		c.insert(goAwayFrameOf(max(stream, 2)-2, noError))
	case EnhanceYourCalmConn:
		c.insert(goAwayFrameOf(stream, enhanceYourCalm))
		c.Close()
	default:
		return
	}
	panic(http.ErrAbortHandler)
}

func (a Response) writeHeader(w http.ResponseWriter, body string) {
	maps.Copy(w.Header(), a.Header)
	if a.Fault != Endless && !a.hasNoBody() && w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(cmp.Or(a.Status, http.StatusOK))
	a.sendAll(w, "") // a slow body must not delay the header
}

// writeBody sends the body, or the part of it that a.Fault allows.
func (a Response) writeBody(w http.ResponseWriter, r *http.Request, body string) {
	half := body[:len(body)/2]
	switch a.Fault {
	case CutBody:
		a.send(w, r, half)
	case ResetBody:
		a.send(w, r, half)
		connOf(r).reset()
	case HangBody:
		a.send(w, r, half)
		<-r.Context().Done()
	case Endless:
		for {
			a.sendAll(w, body)
			sleep(r.Context(), max(a.ByteInterval, time.Millisecond))
		}
	default:
		a.send(w, r, body)
		if a.Fault == HangConn {
			time.AfterFunc(hangDelay, connOf(r).hang)
		}
		return
	}
	panic(http.ErrAbortHandler)
}

// send sends part, one byte per ByteInterval if it is set.
func (a Response) send(w http.ResponseWriter, r *http.Request, part string) {
	if a.ByteInterval == 0 {
		a.sendAll(w, part)
		return
	}
	for i := range len(part) {
		sleep(r.Context(), a.ByteInterval)
		a.sendAll(w, part[i:i+1])
	}
}

// sendAll sends part, which may be empty, immediately. It aborts the handler if the client is gone.
func (a Response) sendAll(w http.ResponseWriter, part string) {
	var err error
	if part != "" { // over HTTP/2 even an empty write fails if there must be no body
		_, err = io.WriteString(w, part)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// echo switches protocols and then sends back all bytes that it receives, until the client
// closes the connection.
func echo(w *responseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2 does not support upgrades
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	defer conn.Close()
	w.server.recorder.setStatus(w.n, http.StatusSwitchingProtocols)
	_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"), rw))
}

// sleep waits for d. It aborts the handler if ctx ends first.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}
