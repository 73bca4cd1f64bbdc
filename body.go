package heed

import (
	"fmt"
	"io"
	"net/http"
)

// A body sends the body of a request once per attempt. The first attempt sends the
// request as it is, so that net/http sees the very body that it was given; others
// send copies of it.
type body struct {
	source source
	fresh  io.ReadCloser // opened for the next attempt
}

// A source is where the body of another attempt comes from.
type source uint8

const (
	none    source = iota // there is no body
	once                  // nowhere: it can be sent once
	getBody               // Request.GetBody
)

func bodyOf(req *http.Request) body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return body{source: none}
	case req.GetBody != nil:
		return body{source: getBody}
	}
	return body{source: once}
}

// prepare opens the body of another attempt, or returns why there is none: better
// no second attempt than one with an empty body.
func (b *body) prepare(req *http.Request) (err error) {
	switch b.source {
	case once:
		return ErrBody
	case getBody:
		if b.fresh, err = req.GetBody(); err != nil {
			return fmt.Errorf("heed: the body cannot be sent again: GetBody: %w", err)
		}
	}
	return nil
}

// next returns the request of the next attempt.
func (b *body) next(req *http.Request) *http.Request {
	if b.fresh == nil {
		return req
	}
	again := req.WithContext(req.Context())
	again.Body, b.fresh = b.fresh, nil
	return again
}

// drop closes what will not be sent. Base closes what it was given.
func (b *body) drop(req *http.Request, unsent bool) {
	if unsent {
		closeBody(req.Body)
	}
	closeBody(b.fresh)
	b.fresh = nil
}

func closeBody(b io.Closer) {
	if b != nil {
		b.Close()
	}
}
