package agent

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// maxMessageBytes bounds a report's message.
const maxMessageBytes = 1000

// runHandler runs the attempt inside this program.
func (a *attempt) runHandler() protocol.Report {
	if !a.begin() {
		return a.endedReport(a.endCause())
	}
	if timeout := a.timeout(); timeout > 0 {
		timer := time.AfterFunc(timeout, func() { a.end(errTimeout) })
		defer timer.Stop()
	}
	outputs, err := a.callHandler()
	if cause := a.endCause(); cause != nil {
		return a.endedReport(cause)
	}
	if err == nil && len(outputs) > 0 {
		err = checkOutputs(outputs)
	}
	if err != nil {
		return a.errorReport(err)
	}
	return protocol.Report{Outcome: protocol.Succeeded, Outputs: outputs}
}

// callHandler turns a panic into an error: one order must not end the others.
func (a *attempt) callHandler() (outputs json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			a.s.log.Error("handler panicked", "job", a.lease.Job.Name, "order", a.lease.Order, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("handler panicked: %v", r)
		}
	}()
	return a.handler(a.ctx, a.lease)
}

// oneLine makes a message fit for a report.
func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxMessageBytes {
		message = strings.ToValidUTF8(message[:maxMessageBytes], "") + "…"
	}
	return strings.ToValidUTF8(message, "?")
}
