//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// killGroup lets the end of the context of cmd end all processes that cmd has started: go run, and the program
// that it runs.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
