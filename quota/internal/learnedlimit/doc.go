// Package learnedlimit infers limits that a server does not state from the responses that it gives: so many
// accepted, so many rejected.
//
//	Evidence      the latest responses: are they rejections of a limit, or faults of a healthy server?
//	AcceptedRate  the rate that the server accepted in the last minute
//	Window        the limit as a number of requests in a window of time
//	RateLoop      the limit as a rate, which grows until a rejection and then returns, as in CUBIC
//
// After evidence, and a stop of all requests, a Window is tried if few requests were accepted quickly before a
// long stop, and otherwise a RateLoop. A Window that a response contradicts becomes a RateLoop.
//
// Nothing here reads a clock, takes a lock or sends a request: the caller passes the time and the response,
// and does what the returned LoopAction or Verdict says.
package learnedlimit
