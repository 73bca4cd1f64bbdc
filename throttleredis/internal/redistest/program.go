package redistest

import "log"

// A Program is a T for programs that are not tests. Call End before the program exits.
type Program struct{ cleanups []func() }

// Helper implements T.
func (*Program) Helper() {}

// Cleanup implements T.
func (p *Program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// Fatalf implements T: it ends the program.
func (p *Program) Fatalf(format string, args ...any) {
	p.End()
	log.Fatalf(format, args...)
}

// Skipf implements T: a program cannot be skipped, so it ends.
func (p *Program) Skipf(format string, args ...any) { p.Fatalf(format, args...) }

// End calls the functions given to Cleanup, the last one first.
func (p *Program) End() {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		f()
	}
}
