// Package queue lets callers wait until limits admit them.
//
// A [Ticket] names up to [MaxDemands] limits and the units that a caller needs of each.
// [Queue.Wait] blocks until all of them grant at the same instant. Callers that need the
// same limits wait in order of their arrival and [Ticket.Priority]; the tenants of
// [Ticket.Tenant] share each limit fairly.
package queue
