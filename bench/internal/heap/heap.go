// Package heap measures the memory in use.
package heap

import "runtime"

// InUse returns the bytes of live objects after garbage collection. The second collection
// frees what a sync.Pool kept after the first.
func InUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
