// Package statedlimit models limits that a server states in its responses: how many units are left, and
// when units come back.
//
// An [Estimate] is one such limit. As in a Kalman filter, time predicts its state and responses correct it.
// It is made of these parts, each of which infers one property of the limit from what responses state:
//
//	refill       how units come back: together, evenly, one by one, or in the next window
//	use          how many units are used for each request, other clients included
//	windowStart  the exact reset, which servers round to whole seconds
//	proof        whether the server enforces what it states
//
// Nothing here reads a clock, takes a lock or sends a request: the caller passes the time, the response and
// the claims in flight. Another kind of limit is another refillKind, with its prediction in
// Estimate.returned and its inference in refill.update.
package statedlimit
