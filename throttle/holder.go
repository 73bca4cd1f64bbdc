package throttle

// A Holder is a Limiter that may need to know when the work of a claim has ended, as a
// limit on concurrency does. Code that admits HTTP requests reports the end of the
// response's body to a Holder with a second feedback: see Feedback.Partial. All other
// limiters get one feedback, when the response has begun.
//
// A limiter that wraps others holds until the end if one of them does. The result of
// HoldsUntilEnd may become true with the first grant, and stays true from then on.
type Holder interface {
	HoldsUntilEnd() bool
}

// HoldsUntilEnd reports whether l is a Holder whose claims last until the work has ended.
func HoldsUntilEnd(l Limiter) bool {
	h, ok := l.(Holder)
	return ok && h.HoldsUntilEnd()
}
