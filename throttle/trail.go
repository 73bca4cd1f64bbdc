package throttle

// placeholder, replaced with compose
type trail struct{}
