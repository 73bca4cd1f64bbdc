package heedtest

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Response is what becomes of one request. The zero Answer is status 200 and
// the body "ok\n".
type Response struct {
	Delay        time.Duration // before anything is sent
	EarlyHints   http.Header   // sent at first, with status 103; nil: no such answer
	Status       int           // 0: 200. With 101, an echo of what the client sends follows
	Header       http.Header   // added to those of the limits
	Body         string        // "": "ok\n"
	ByteInterval time.Duration // between bytes of the body; 0: all at once
	Fault        Fault         // what goes wrong; 0: nothing
}

// A Fault is a way in which an answer goes wrong.
type Fault uint8

// The faults. Where HTTP/2 lets a stream end by itself, the connection stays.
const (
	NoFault   Fault = iota
	Hang            // no answer, until the client gives up
	Drop            // no answer: the connection is closed
	Reset           // no answer: the connection is reset
	CloseConn       // no answer, and never again anything on this connection: its other end has lost its power
	CutBody         // the connection is closed after half of the body
	ResetBody       // the connection is reset after half of the body
	HangBody        // nothing after half of the body, until the client gives up
	Endless         // the body again and again, until the client gives up; Pace is between the repetitions, 0: 1 ms
	HangConn        // all is well, but afterwards the connection is as after Vanish: half open

	// Of HTTP/2 only; over HTTP/1.1 they are as Drop.

	RefuseStream          // the stream is reset: REFUSED_STREAM, the request was not looked at
	EnhanceYourCalmStream // the stream is reset: ENHANCE_YOUR_CALM
	GoAway                // the connection takes no more: GOAWAY, this request and those after it were not looked at
	EnhanceYourCalmConn   // the connection is closed: GOAWAY with ENHANCE_YOUR_CALM, what became of the request is not said
)

// hangDelay is how long after its last answer a connection goes silent. The answer
// must have left by then.
const hangDelay = 10 * time.Millisecond

// Script returns a function that gives each request the next of the answers, and
// after the last of them the zero Answer.
func Script(responses ...Response) func(Request) Response {
	var next atomic.Int64
	return func(Request) Response {
		if i := next.Add(1) - 1; i < int64(len(responses)) {
			return responses[i]
		}
		return Response{}
	}
}

// write answers r with a.
func (a Response) write(w *responseWriter, r *http.Request) {
	sleep(r.Context(), a.Delay)
	a.failWithoutResponse(r, w.stream)
	if a.EarlyHints != nil {
		maps.Copy(w.Header(), a.EarlyHints)
		w.WriteHeader(http.StatusEarlyHints)
		for key := range a.EarlyHints {
			w.Header().Del(key)
		}
	}
	if a.Status == http.StatusSwitchingProtocols {
		echo(w)
		return
	}
	body := a.Body
	if body == "" {
		body = "ok\n"
	}
	a.writeHeader(w, body)
	a.writeBody(w, r, body)
}

// failWithoutResponse does the faults that leave no answer.
func (a Response) failWithoutResponse(r *http.Request, stream uint32) {
	switch c := connOf(r); a.Fault {
	case Hang:
		<-r.Context().Done()
	case Drop:
	case Reset:
		c.reset()
	case CloseConn:
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
	if a.Fault != Endless && w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	status := a.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	a.sendAll(w, "") // a slow body must not hold up the header
}

// writeBody sends the body, or as much of it as the fault lets through.
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

// send sends part at the pace of a.
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

// sendAll sends part now. It ends the handler if nobody is there any more.
func (a Response) sendAll(w http.ResponseWriter, part string) {
	_, err := io.WriteString(w, part)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// echo switches to a protocol that sends back what it gets, until the client
// closes the connection.
func echo(w *responseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2 has no such thing
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	defer conn.Close()
	w.server.recorder.setStatus(w.n, http.StatusSwitchingProtocols)
	_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"), rw))
}

// sleep waits for d. It ends the handler if the client gives up meanwhile.
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
