package protocol

import "errors"

// ErrSessionGone means that the session has ended: it was lost, closed, or
// named as the previous one by a newer session.
var ErrSessionGone = errors.New("session has ended")

// ErrRefused means that the controller refuses the request for good, for
// example because the agent isn't defined or the token has no right to it.
// Repeating the call is pointless.
var ErrRefused = errors.New("refused by the controller")
