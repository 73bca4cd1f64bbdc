package heedtest

// Conns returns the number of connections that have been accepted so far.
func (s *Server) Conns() int {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return len(s.recorder.conns)
}
