package redistest

import (
	"os/exec"
	"syscall"
)

// killWithParent has the process of cmd killed when this one ends.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
