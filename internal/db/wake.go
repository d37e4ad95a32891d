package db

// Waker is told which lines may have work after a transaction has committed.
// Waking is an optimisation: behind every wake-up stands a sweeper.
type Waker interface {
	// Wake returns at once. Lines are ids of resources.
	Wake(lines ...int32)
	// WakeIntake says that orders wait for their place.
	WakeIntake()
}

// NoWaker wakes nobody; for programs and tests that look themselves.
type NoWaker struct{}

// Wake does nothing.
func (NoWaker) Wake(...int32) {}

// WakeIntake does nothing.
func (NoWaker) WakeIntake() {}
