//go:build !linux

package redistest

import "os/exec"

// killWithParent does nothing: only Linux can tie a process to its parent.
func killWithParent(*exec.Cmd) {}
