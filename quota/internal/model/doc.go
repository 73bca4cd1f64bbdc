// Package model decides on the requests of one quota of a server, and learns from the responses. A [Quota]
// combines what may delay them: a hold (package hold), bounds on the requests in flight (package concurrency),
// estimates of the limits that the server states (package statedlimit) and, if it states none, what was [Learned]
// from its rejections (package learnedlimit). While requests wait, one at a time is sent as a test of the reason.
// [Units] count what else than requests the server limits.
//
// Nothing here has a clock or a lock. Each method gets the time, which never decreases.
package model
