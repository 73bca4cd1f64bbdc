// Package learnedlimit infers limits that a server does not state from the responses that it gives: so many
// accepted, so many rejected.
//
//	AcceptedRate  the rate that the server accepted in the last minute
//	Window        the limit as a number of requests in a window of time
//	RateTest      whether rejections depend on the rate at all
//	RateLoop      the limit as a rate, which grows until a rejection and then returns, as in CUBIC
//
// After a hold that was right, a Window is assumed if few requests were accepted quickly before a long hold, and
// otherwise a RateLoop. A RateTest begins a RateLoop without a hold. A Window that a response contradicts becomes a RateLoop.
//
// Nothing here reads a clock, takes a lock or sends a request: the caller passes the time and the response,
// and does what the returned LoopAction or Verdict says.
package learnedlimit
