package quota

import (
	"github.com/heed-go/heed/throttle"
)

type (
	Message    = message
	MessageBus = messageBus
)

func SetNewExchange(f func(b MessageBus, secret []byte, clock throttle.Clock) Exchange) {
	newExchange = f
}
