package queue

// A Trace holds functions that a Queue calls for each ticket. Each function is called by the
// goroutine that called Wait or Try, without a lock. Nil functions are not called.
type Trace struct {
	// Queued is called when Wait begins to wait. The ClassSnapshot describes the class of the
	// ticket: Limit is the limit that it waits for, and Waiting includes the ticket.
	Queued func(*Ticket, ClassSnapshot)

	// Granted is called before Wait or Try returns nil. Ticket.Waited and Ticket.WaitedFor
	// describe the wait.
	Granted func(*Ticket)

	// Failed is called before Wait or Try returns an error.
	Failed func(*Ticket, error)
}
