// Package concurrency bounds the requests in flight to a server, where no stated limit does.
//
//	SlowStart      at the beginning, and after a hold whose limit was not learned
//	SlowResponses  while the server responds late or fails
//	Cut            after a rejection that states nothing and is no evidence of a limit yet
//
// Nothing here reads a clock or takes a lock: the caller passes the time and the claims in flight.
package concurrency
