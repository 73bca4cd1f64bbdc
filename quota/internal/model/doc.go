// Package model decides on the requests of one quota of a server, and learns from the responses. A [Quota]
// combines what may limit them: a hold, bounds on the requests in flight, estimates of the limits that the
// server states (package statedlimit) and, if it states none, an [Inference] from its rejections (package
// learnedlimit). [Units] count what else than requests the server limits.
//
// Nothing here has a clock or a lock. Each method gets the time, which never decreases.
package model
