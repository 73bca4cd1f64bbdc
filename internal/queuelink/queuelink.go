// Package queuelink has the functions of package throttle/queue that only packages of this module call.
package queuelink

import (
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Package queue sets these functions. A q is a *queue.Queue, and a ticket a *queue.Ticket.
var (
	// NumWaiting returns where q counts the callers that wait in it. After Close and Drain the count is more than zero.
	NumWaiting func(q any) *atomic.Int64

	// CanBypass reports whether no caller waits in q for l with the given key. It is false after Close and Drain.
	CanBypass func(q any, l throttle.Limiter, key string) bool

	// SetDefaults sets MaxTotal and MaxWait of q for the case that they are zero. Zero or less, the initial values, mean
	// no maximum. Callers that wait already may keep the previous values.
	SetDefaults func(q any, maxTotal int, maxWait time.Duration)

	// GrantedAt returns when ticket was granted; zero if it holds no grant, or has no demands.
	GrantedAt func(ticket any) time.Time
)
