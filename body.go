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
	source source
	replay *replay       // of fromReplay
	fresh  io.ReadCloser // opened for the next attempt, and not given to Base yet; nil: none
	given  bool          // Base was given a body at least once, and closes what it was given
}

// A source is where the body of another attempt comes from.
type source uint8

const (
	noBody      source = iota // there is no body
	sentOnce                  // nowhere: it can be sent once
	fromGetBody               // Request.GetBody
	fromReplay                // a replay
)

// bodyOf returns how the body of req is sent. At most keep bytes of it are kept.
func bodyOf(req *http.Request, keep int64) body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return body{source: noBody}
	case req.GetBody != nil:
		return body{source: fromGetBody}
	}
	r := newReplay(req, keep)
	if r == nil {
		return body{source: sentOnce}
	}
	return body{source: fromReplay, replay: r, fresh: r.pass()}
}

// prepare opens the body of another attempt, or returns why there is none.
func (b *body) prepare(req *http.Request) (err error) {
	switch b.source {
	case sentOnce:
		return ErrBody
	case fromGetBody:
		if b.fresh, err = req.GetBody(); err != nil {
			return fmt.Errorf("heed: the body cannot be sent again: GetBody: %w", err)
		}
		if replaced(req, b.fresh) {
			return errReplaced
		}
	case fromReplay:
		return b.replay.lost()
	}
	return nil
}

// rewind makes ready what prepare could not while Base was still reading.
func (b *body) rewind(ctx context.Context) (err error) {
	if b.source == fromReplay {
		b.fresh, err = b.replay.rewind(ctx)
	}
	return err
}

// next returns the body of the attempt that is about to be sent. fresh: it is not
// that of req.
func (b *body) next(req *http.Request) (body io.ReadCloser, fresh bool) {
	if b.fresh == nil {
		return req.Body, false
	}
	return b.fresh, true
}

// give records that Base is given the body that next returned, and closes it from
// now on.
func (b *body) give() { b.fresh, b.given = nil, true }

// finish closes what Base was not given: the body of an attempt that was prepared
// and not sent, and the caller's own if nothing was sent. No attempt follows.
func (b *body) finish(req *http.Request) {
	closeBody(b.fresh)
	switch {
	case b.replay != nil:
		b.replay.finish()
	case !b.given:
		closeBody(req.Body)
	}
	*b = body{given: true} // nothing is left to close
}

var errReplaced = errors.New("heed: the body cannot be sent again: GetBody returns another one than Body: set both")

// replaced reports whether fresh, which GetBody returned, is not the body that was
// sent, as when somebody has put a compressed one into Body and nothing into
// GetBody. It shows in the size of the readers that http.NewRequest knows.
func replaced(req *http.Request, fresh io.ReadCloser) bool {
	n, ok := sizeOf(fresh)
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
