// Package quotalink has the methods of a quota.Tracker that only package heed calls.
package quotalink

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// Of returns the methods of tracker, a *quota.Tracker. Package quota sets it.
var Of func(tracker any) Tracker

// A Tracker has the methods.
type Tracker interface {
	// FeedbackReport is like Feedback of the Tracker. It also sets report to what the response states about limits, in
	// its headers and in what it has read of its body. It leaves report unchanged if there is no response,
	// and may leave it unchanged for a success, because the headers of most successes are not read. sent is when req was granted, just
	// before it was sent; zero: that is not known.
	FeedbackReport(req *http.Request, d throttle.Demand, resp *http.Response, err error, sent, now time.Time, buf []throttle.RemoteLimit, report *headers.Report) throttle.Feedback

	// ObserveLatency records that the server accepted req and took d, until now, to respond.
	ObserveLatency(req *http.Request, d time.Duration, now time.Time)

	// ObserveExpired records that req, which had waited before it was sent, was ended by the deadline of its caller
	// after d, at now, without a response: the server takes longer than d.
	ObserveExpired(req *http.Request, d, waited time.Duration, now time.Time)

	// Latency returns the time that the server takes to respond to requests of the route of req: typical is the
	// lower quartile of the responses to the latest 24 requests, and high the longest time that one of these took,
	// also without a response. If the route had no request in the last minute, they are those of its host. A zero is
	// not known: there was no response, or no request.
	Latency(req *http.Request, now time.Time) (typical, high time.Duration)
}
