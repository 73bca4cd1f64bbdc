package redistest

import (
	"os/exec"
	"runtime"
)

// StartProcess starts cmd and returns a channel that is closed when its process has ended.
// On Linux the process is killed when this process ends for any reason: a test that panics
// or exceeds its time limit runs no cleanup.
func StartProcess(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		// Linux sends the signal when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		killWithParent(cmd)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait()
		close(done)
	}()
	return done, <-started
}
