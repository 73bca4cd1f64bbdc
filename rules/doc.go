// Package rules reads limits from a file and finds those that a request must pass.
package rules
