// Package adapter tells a queue.Queue which limits an adapted limiter stands for. It is internal
// because a Queue calls an Adapter with its lock held.
package adapter

// An Adapter is a part of a throttle.AllOf that passes claims to another limiter, with the same
// cost and a key that it derives from that of the claim. Callers that wait for it, and callers
// that wait for the other limiter alone, wait in one order.
type Adapter interface {
	// Adapted returns what the Adapter passes claims with the key to.
	Adapted(key string) Target
}

// A Target is a limiter and the key of the claims that it gets.
type Target struct {
	Limiter any // a throttle.Limiter
	Key     string
}
