package throttleredis

import "github.com/heed-go/heed/throttle"

func (l *limit) grantedWide(parts []throttle.Decision) (any, any) { return 0, 0 }
