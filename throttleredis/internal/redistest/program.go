package redistest

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"
)

// A Program implements T for programs that are not tests. End must be called before the
// program exits.
type Program struct{ cleanups []func() }

// Helper implements T.
func (*Program) Helper() {}

// Cleanup implements T.
func (p *Program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// Fatalf implements T. It ends the program.
func (p *Program) Fatalf(format string, args ...any) {
	p.End()
	log.Fatalf(format, args...)
}

// Skipf implements T. A program cannot be skipped, so Skipf ends it.
func (p *Program) Skipf(format string, args ...any) { p.Fatalf(format, args...) }

// End calls the functions passed to Cleanup in reverse order.
func (p *Program) End() {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		f()
	}
}

// DiscardLog discards the log of go-redis, which reports each fault.
func DiscardLog() { redis.SetLogger(noLogger{}) }

// noLogger is a logger of go-redis that writes nothing.
type noLogger struct{}

// Printf implements the logger of go-redis.
func (noLogger) Printf(context.Context, string, ...any) {}
