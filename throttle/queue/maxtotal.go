package queue

// SetDefaultMaxTotal sets the number of callers that may be in all lines together while
// MaxTotal is zero. Zero, as before the first call, means no bound. It may be called at any
// time; callers that are in line already stay there.
func (q *Queue) SetDefaultMaxTotal(n int) { q.defaultMaxTotal.Store(int64(n)) }

// maxTotal returns how many callers may be in all lines together; 0 or less: any number.
func (q *Queue) maxTotal() int {
	if q.MaxTotal == 0 {
		return int(q.defaultMaxTotal.Load())
	}
	return q.MaxTotal
}
