// Package queue lets callers wait, in a fair order, until limiters admit them.
//
// A [Ticket] names any number of limits and the units that a caller needs of each.
// [Queue.Wait] blocks until all of them grant the ticket at the same instant.
//
//	var q queue.Queue // shared by all callers of the same limits
//	rate := throttle.NewTokenBucket(throttle.PerSecond(100))
//	connections := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10})
//
//	var t queue.Ticket
//	t.Add(throttle.Demand{Limiter: rate})
//	t.Add(throttle.Demand{Limiter: connections})
//	if err := q.Wait(ctx, &t); err != nil {
//		return err
//	}
//	err := work()
//	q.Report(ctx, &t, throttle.Feedback{}) // State Unused, if the work was not started
//
// A caller that is blocked in Wait is a waiter. Waiters of one tenant that need the same limits form a class. Only the
// head of each class asks its limiters (but see [throttle.Decision.Test]). When a limit rejects the head, the class
// waits for that limit, so an exhausted limit delays only the callers that need it.
//
// Tenants that wait for the same limit share it by self-clocked fair queueing (Golestani, INFOCOM 1994): of two tenants
// that wait during the same time, neither gets more units than the other by more than the largest claim of each, all
// divided by [Ticket.Weight]. Each name that waits has a share, so a program that takes names from untrusted input lets
// a client take many, see [Ticket.Tenant]. Within a tenant the order is by [Ticket.Priority], then by arrival;
// [Queue.Aging] bounds how long a higher priority can delay a lower one. If more callers wait than can be granted in
// time, those with enough time left go first, see [Ticket.HighLatency].
//
//	        arrives                   limit opens
//	           │                           │
//	Wait ──▶ waiting (not head) ──▶ head ──▶ granted
//	           │                      │
//	           └── ctx done, MaxWait, Close: error, no units taken
package queue
