package heed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
)

// A body sends the body of a request once per attempt:
//
//   - from GetBody, if there is one;
//   - else by seeking back to where it began, if it can seek;
//   - else from what was kept while it was sent, if that is not too much;
//   - else it is sent once.
//
// Nothing is read before the first attempt, and there is never an attempt with an
// empty body for want of a better one.
type body struct {
	source      source
	rewinder    *rewindBody   // of fromRewind
	pending     io.ReadCloser // opened for the next attempt, and not given to Base yet; nil: none
	givenToBase bool          // Base was given a body at least once, and closes what it was given
}

// A source is where the body of another attempt comes from.
type source uint8

const (
	noBody      source = iota // there is no body
	sentOnce                  // nowhere: it can be sent once
	fromGetBody               // Request.GetBody
	fromRewind                // a replay
)

// bodyOf returns how the body of req is sent. At most keep bytes of it are kept.
func bodyOf(req *http.Request, maxLength int64) body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return body{source: noBody}
	case req.GetBody != nil:
		return body{source: fromGetBody}
	}
	r := newRewindBody(req, maxLength)
	if r == nil {
		return body{source: sentOnce}
	}
	return body{source: fromRewind, rewinder: r, pending: r.newReader()}
}

// checkReplayable opens the body of another attempt, or returns why there is none.
func (b *body) checkReplayable(req *http.Request) (err error) {
	switch b.source {
	case sentOnce:
		return ErrBodyNotReplayable
	case fromGetBody:
		if b.pending, err = req.GetBody(); err != nil {
			return fmt.Errorf("heed: the body cannot be sent again: GetBody: %w", err)
		}
		if replaced(req, b.pending) {
			return errBodyReplaced
		}
	case fromRewind:
		return b.rewinder.replayErr()
	}
	return nil
}

// rewind makes ready what prepare could not while Base was still reading.
func (b *body) rewind(ctx context.Context) (err error) {
	if b.source == fromRewind {
		b.pending, err = b.rewinder.rewind(ctx)
	}
	return err
}

// next returns the body of the attempt that is about to be sent. fresh: it is not
// that of req.
func (b *body) next(req *http.Request) (body io.ReadCloser, isNew bool) {
	if b.pending == nil {
		return req.Body, false
	}
	return b.pending, true
}

// markGiven records that Base is given the body that next returned, and closes it from
// now on.
func (b *body) markGiven() { b.pending, b.givenToBase = nil, true }

// finish closes what Base was not given: the body of an attempt that was prepared
// and not sent, and the caller's own if nothing was sent. No attempt follows.
func (b *body) finish(req *http.Request) {
	closeBody(b.pending)
	switch {
	case b.rewinder != nil:
		b.rewinder.finish()
	case !b.givenToBase:
		closeBody(req.Body)
	}
	*b = body{givenToBase: true} // nothing is left to close
}

var errBodyReplaced = errors.New("heed: the body cannot be sent again: GetBody returns another one than Body: set both")

// replaced reports whether fresh, which GetBody returned, is not the body that was
// sent, as when somebody has put a compressed one into Body and nothing into
// GetBody. It shows in the size of the readers that http.NewRequest knows.
func replaced(req *http.Request, opened io.ReadCloser) bool {
	n, ok := sizeOf(opened)
	if !ok {
		return false
	}
	if sent, ok := sizeOf(req.Body); ok && sent != n {
		return true
	}
	return req.ContentLength > 0 && req.ContentLength != n
}

// What io.NopCloser returns, for readers without and with WriteTo.
var nopClosers = [...]reflect.Type{
	reflect.TypeOf(io.NopCloser(nil)),
	reflect.TypeOf(io.NopCloser(new(bytes.Reader))),
}

// sizeOf returns the size of a *bytes.Reader or *strings.Reader that was made a
// ReadCloser by io.NopCloser, whether it was read or not.
func sizeOf(b io.ReadCloser) (int64, bool) {
	if t := reflect.TypeOf(b); t != nopClosers[0] && t != nopClosers[1] {
		return 0, false
	}
	switch r := reflect.ValueOf(b).Field(0).Interface().(type) {
	case *bytes.Reader:
		return r.Size(), true
	case *strings.Reader:
		return r.Size(), true
	}
	return 0, false
}

func closeBody(b io.Closer) {
	if b != nil {
		b.Close()
	}
}
