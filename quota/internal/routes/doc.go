// Package routes tells which requests of a host are alike, and what was seen of them.
//
//	Append, Hash  the route of a request: its method and its path without identifiers, or its quota name
//	Patterns      routes that differ in one segment and have the same quota
//	Latencies     how long the latest responses of each route took
//
// All of it has fixed or reserved memory, whatever the requests are.
package routes
