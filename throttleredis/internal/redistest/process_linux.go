package redistest

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill the process of cmd when this process ends.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
