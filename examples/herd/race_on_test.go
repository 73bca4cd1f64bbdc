//go:build race

package main

// racing reports whether the race detector is on. Its records of synchronization overflow
// when thousands of goroutines sleep in virtual time: "ThreadSanitizer: CHECK failed".
const racing = true
