package throttle

// SetDefaultMaxTotal sets the number of callers that may be in all lines together while
// MaxAll is zero. Zero, as before the first call, means no bound. It may be called at any
// time; callers that are in line already stay there.
func (w *Waiter) SetDefaultMaxTotal(n int) { w.most.Store(int64(n)) }

// maxTotal returns how many callers may be in all lines together; 0 or less: any number.
func (w *Waiter) maxTotal() int {
	if w.MaxAll == 0 {
		return int(w.most.Load())
	}
	return w.MaxAll
}
